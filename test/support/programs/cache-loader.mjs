// Reads `key` in `callers` calls at once, as the options say. The loader counts itself at Redis, and takes `time` ms.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { CacheService, RedisLockModule } from 'nest-redis-lock';

const [, , port, key, callers, time, options] = process.argv;
const redis = { host: '127.0.0.1', port: Number(port) };
class Root {}
const module = { module: Root, imports: [RedisLockModule.forRoot({ redis })] };
const app = await NestFactory.createApplicationContext(module, { logger: false });
const counter = new Redis(redis);
const cache = app.get(CacheService);
console.log('ready');
await counter.brpop(`start:${process.pid}`, 0);
const reads = Array.from({ length: Number(callers) }, () =>
  cache.getOrSet(
    key,
    async () => {
      await counter.incr(`loads:${key}`);
      await new Promise((resolve) => setTimeout(resolve, Number(time)));
      return process.pid;
    },
    JSON.parse(options ?? '{}'),
  ),
);
const values = [...new Set(await Promise.all(reads))];
console.log('done' + JSON.stringify({ values }));
counter.disconnect();
await app.close();
