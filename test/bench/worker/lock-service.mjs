import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule } from 'nest-redis-lock';

/** One instance of ours, wired as in an application. */
export async function connectLocks(port) {
  const app = await connectApplication(port);
  return app.get(LockService);
}

export async function connectApplication(port, options = {}) {
  class Root {}
  const imports = [RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port }, failFast: true, ...options })];
  return NestFactory.createApplicationContext({ module: Root, imports }, { logger: false });
}
