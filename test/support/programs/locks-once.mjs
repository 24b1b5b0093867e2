// Starts an application, takes a lock and ends. Its arguments: import or require, and the option `cache` as JSON.
import 'reflect-metadata';
import { createRequire } from 'node:module';
import { NestFactory } from '@nestjs/core';

const [how, cache] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const { LockService, memory, RedisLockModule } =
  how === 'require' ? require('../../../dist/cjs/index.js') : await import('../../../dist/index.js');

class App {}
const locks = RedisLockModule.forRoot({ backend: memory(), ...(cache && { cache: JSON.parse(cache) }) });
const app = await NestFactory.createApplicationContext({ module: App, imports: [locks] }, { logger: ['error'] });
await app.get(LockService).withLock('job', async () => {});
await app.close();
