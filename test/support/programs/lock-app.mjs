import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule } from 'nest-redis-lock';

class Root {}

/** An application on the Redis server that the command line names. */
export async function startLockApp(options = {}, { shutdownHooks = true } = {}) {
  const redis = { host: '127.0.0.1', port: Number(process.argv[2]) };
  const module = { module: Root, imports: [RedisLockModule.forRoot({ redis, ...options })] };
  const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
  if (shutdownHooks) app.enableShutdownHooks();
  return { app, locks: app.get(LockService) };
}

export function say(word, value) {
  console.log(`${word} ${JSON.stringify(value ?? null)}`);
}
