// Takes a lock, and reads through the cache, on a client of node-redis.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { createClient } from '@redis/client';
import { CacheService, LockService, RedisLockModule } from 'nest-redis-lock';

class App {}
const client = createClient({ url: process.env.REDIS_URL });
await client.connect();
const imports = [RedisLockModule.forRoot({ redis: client })];
const app = await NestFactory.createApplicationContext({ module: App, imports }, { logger: ['warn', 'error'] });
const held = await app.get(LockService).withLock('job', async (lock) => lock.held);
const cache = app.get(CacheService);
await cache.set('price', 12);
const price = await cache.get('price');
await app.close();
await client.close();
console.log(JSON.stringify({ held, price }));
