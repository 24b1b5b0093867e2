import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule } from 'nest-redis-lock';

/** One instance of ours, wired as in an application. */
export async function connectLocks(port) {
  class Root {}
  const imports = [RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port }, failFast: true })];
  const app = await NestFactory.createApplicationContext({ module: Root, imports }, { logger: false });
  return app.get(LockService);
}
