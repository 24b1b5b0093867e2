// Leads, by work that never settles, and nothing else keeps the process alive.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LeaderElection, memory, RedisLockModule } from 'nest-redis-lock';
import { say } from './lock-app.mjs';

class Root {}
const module = { module: Root, imports: [RedisLockModule.forRoot({ backend: memory(), shutdownGrace: 100 })] };
const app = await NestFactory.createApplicationContext(module, { logger: false });
const candidacy = app.get(LeaderElection).join('boss', { onElected: () => new Promise(() => {}) });
await candidacy.answered;
const close = async () => {
  say('leads', candidacy.isLeader);
  await app.close();
  say('closed');
};
setTimeout(() => void close(), 300).unref();
