import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { lockModule, LockService as imported } from './imports.mjs';
import { Job, LockService as required } from './requires.cjs';

class App {}

const module = { module: App, imports: [lockModule], providers: [Job] };
const app = await NestFactory.createApplicationContext(module, { logger: ['warn', 'error'] });
const held = await app.get(Job).run();
await app.close();
console.log(JSON.stringify({ oneClass: imported === required, held }));
