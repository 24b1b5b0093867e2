// Begins a double deletion by prefix whose write never ends.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { CacheService, RedisLockModule } from 'nest-redis-lock';

const [, , port, prefix, delay] = process.argv;
class Root {}
const module = {
  module: Root,
  imports: [RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port: Number(port) } })],
};
const app = await NestFactory.createApplicationContext(module, { logger: false });
const write = () => {
  console.log('writes');
  return new Promise((resolve) => setTimeout(resolve, 1_000_000));
};
await app.get(CacheService).doubleDeleteByPrefix(prefix, write, { delay: Number(delay) });
