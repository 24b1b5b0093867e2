import 'reflect-metadata';
import { Redis } from 'ioredis';
import { CacheConfigError, CacheService, LockService, memory, RedisLockModule } from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';
import { NestFactory } from '@nestjs/core';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { openCache } from '../../support/cache-instance.js';
import { Gate } from '../../support/gate.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

describe('where values are kept', () => {
  it('is the Redis of the locks, under the prefix', async () => {
    await using instance = await openCache({ redis: server.url, prefix: 'shop' });
    await instance.cache.set('a', 'x');
    const redis = new Redis(server.url);
    try {
      expect(await redis.exists('shop:cache:a')).toBe(1);
    } finally {
      redis.disconnect();
    }
  });

  it('is another Redis where the cache has one of its own', async () => {
    const other = await startRedisServer();
    try {
      await using instance = await openCache({ redis: server.url, cache: { redis: other.url } });
      await instance.cache.set('elsewhere', 1);
      const redis = new Redis(other.url);
      try {
        expect(await redis.exists('cache:elsewhere')).toBe(1);
      } finally {
        redis.disconnect();
      }
    } finally {
      await other.stop();
    }
  });

  it('is the memory of the application with memory()', async () => {
    await using instance = await openCache({ backend: memory() });
    await instance.cache.set('a', new Date(5));
    expect(await instance.cache.get('a')).toEqual(new Date(5));
  });

  it('is the memory of the application in unit tests', async () => {
    class Root {}
    const module = { module: Root, imports: [RedisLockTestingModule] };
    const app = await NestFactory.createApplicationContext(module, { logger: false });
    const cache = app.get(CacheService);
    let loads = 0;
    const load = async () => ++loads;
    expect([await cache.getOrSet('a', load), await cache.getOrSet('a', load)]).toEqual([1, 1]);
    await app.close();
  });
});

describe('options', () => {
  const refusals: [string, Record<string, unknown>, RegExp][] = [
    ['an unknown one', { ttl: 5 }, /Unknown option "cache\.ttl"; give any of .*redis, .*defaults/],
    ['an unknown default', { defaults: { tll: 5 } }, /Unknown cache option "tll"; give any of ttl/],
    ['a duration that is none', { commandTimeout: '5 minutes' }, /"cache\.commandTimeout" is "5 minutes"; give milli/],
    ['a first level of no entries', { l1: { max: 0 } }, /"cache\.l1\.max" is 0; give a whole number from 1 on/],
    ['a bus that is none', { l1: { bus: 'amqp' } }, /"cache\.l1\.bus" is "amqp"; give 'pubsub' or 'tracking'/],
    ['a breaker of no errors', { breaker: { errors: 0 } }, /"cache\.breaker\.errors" is 0/],
  ];
  it.each(refusals)('refuse %s', async (_, cache, message) => {
    const options = { redis: server.url, cache };
    await expect(openCache(options, { heard: false })).rejects.toThrow(message);
  });

  it('without a cache, its use says what to do', async () => {
    await using instance = await openCache({ redis: server.url, cache: false }, { heard: false });
    await expect(instance.cache.getOrSet('a', async () => 1)).rejects.toThrow(CacheConfigError);
    await expect(instance.cache.get('a')).rejects.toThrow(/do not set "cache: false"/);
    expect(await instance.app.get(LockService).isLocked('a')).toBe(false);
  });

  it('accept the module factory', async () => {
    class Root {}
    const imports = [RedisLockModule.forRootAsync({ useFactory: () => ({ redis: server.url, cache: {} }) })];
    const app = await NestFactory.createApplicationContext({ module: Root, imports }, { logger: false });
    expect(await app.get(CacheService).getOrSet('factory', async () => 7)).toBe(7);
    await app.close();
  });
});

describe('the end of the application', () => {
  it('lets who holds a lock finish what it does to the cache', async () => {
    const { app, cache } = await openCache({ redis: server.url });
    await cache.set('order', 'old');
    const held = new Gate();
    const ending = new Gate();
    const work = app.get(LockService).withLock('order', async () => {
      held.open();
      await ending.opened;
      await cache.invalidate('order', { onRedisError: 'throw' });
    });
    await held.opened;
    const closed = app.close();
    ending.open();
    await work;
    await closed;
    await using other = await openCache({ redis: server.url });
    expect(await other.cache.get('order')).toBeUndefined();
  });

  it('answers what comes after it from the loader, and names an invalidation that it gives up', async () => {
    const { app, cache, logger } = await openCache({ redis: server.url });
    await app.close();
    expect(await cache.getOrSet('after', async () => 1)).toBe(1);
    await cache.invalidate('after');
    expect(logger.matching(/Redis has not confirmed the invalidation of "after", which is given up/)).toHaveLength(1);
  });

  it('opens no connection for messages in an application that only locks', async () => {
    const redis = new Redis(server.url);
    try {
      const connections = async () => ((await redis.client('LIST')) as string).trim().split('\n').length;
      const before = await connections();
      await using instance = await openCache({ redis: server.url }, { heard: false });
      await instance.app.get(LockService).withLock('a', async () => {});
      expect(await connections()).toBe(before + 1);
      await instance.cache.get('a');
      await eventually(async () => (await connections()) === before + 2);
    } finally {
      redis.disconnect();
    }
  });

  it('closes the connections of the cache', async () => {
    const redis = new Redis(server.url);
    try {
      const connections = async () => ((await redis.client('LIST')) as string).trim().split('\n').length;
      const before = await connections();
      const instance = await openCache({ redis: server.url });
      await instance.cache.getOrSet('a', async () => 1);
      expect(await connections()).toBe(before + 2);
      await instance.close();
      await eventually(async () => (await connections()) === before);
    } finally {
      redis.disconnect();
    }
  });
});
