import 'reflect-metadata';
import { type CacheOperations } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from './servers/redis-server.js';

export let server: RedisServer;

export const away = () => Promise.reject(new Error('Redis is away'));

/** A method that has the object itself as `this`, whatever it is called on. */
export const bound = (target: object, name: PropertyKey): unknown =>
  (Reflect.get(target, name) as () => void).bind(target);

export const read = (cache: CacheOperations, key: string, value: string) =>
  cache.getOrSet(key, () => value, { jitter: 0 });

/** One server for the tests of the file. */
export function startRedis(): void {
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());
}
