// Ends an application whose backend refuses every request at once, as a database that is down does.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, memory, RedisLockModule } from 'nest-redis-lock';
import { say } from './lock-app.mjs';

const down = () => Promise.reject(new Error('connection refused'));
const kept = memory();
const open = kept.open.bind(kept);
const backend = Object.assign(kept, {
  open: (module) => Object.assign(open(module), { acquire: down, release: down }),
});

class App {}
const locks = RedisLockModule.forRoot({ backend, cache: false });
const app = await NestFactory.createApplicationContext({ module: App, imports: [locks] }, { logger: ['error'] });
await app
  .get(LockService)
  .acquire('job', { wait: 0 })
  .catch(({ code }) => say('refused', code));
await app.close();
say('closed');
