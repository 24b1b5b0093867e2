import 'reflect-metadata';
import { once } from 'node:events';
import { createClient } from '@redis/client';
import { Redis } from 'ioredis';
import { CacheService } from 'nest-redis-lock';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

/** More than a function can be given as arguments. */
const MANY = Array.from({ length: 130_000 }, (_, index) => `m${index}`);

let server: RedisServer;
let admin: Redis;
beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
});
afterAll(async () => {
  admin.disconnect();
  await server.stop();
});

const OPENED: Record<string, () => Promise<{ redis: string | Awaited<ReturnType<typeof nodeRedis>> }>> = {
  ioredis: async () => ({ redis: server.url }),
  'node-redis': async () => ({ redis: await nodeRedis() }),
};

async function nodeRedis() {
  return createClient({ url: server.url })
    .on('error', () => {})
    .connect();
}

describe.each(['ioredis', 'node-redis'] as const)(
  'lists of 130,000 names at a Redis that knows no script: %s',
  (kind) => {
    let app: LockApp;
    let cache: CacheService;
    let redis: string | Awaited<ReturnType<typeof nodeRedis>>;
    let client: { destroy(): void } | undefined;
    beforeEach(async () => {
      ({ redis } = await (OPENED[kind] as (typeof OPENED)[string])());
      client = typeof redis === 'string' ? undefined : redis;
      app = await startLockApp({ redis, prefix: `large ${kind}`, cache: { commandTimeout: '30s' } });
      cache = app.app.get(CacheService);
      await admin.flushall();
      await admin.script('FLUSH');
    });
    afterEach(async () => {
      await app.close();
      client?.destroy();
    });

    it('sets.add, then sets.remove', async () => {
      expect(await cache.sets.add('set', MANY, { ttl: '1m' })).toBe(MANY.length);
      await admin.script('FLUSH');
      expect(await cache.sets.remove('set', MANY)).toBe(MANY.length);
    });

    it('expiringSet.add, then expiringSet.remove', async () => {
      expect(await cache.expiringSet.add('set', MANY, '1m')).toBe(MANY.length);
      await admin.script('FLUSH');
      expect(await cache.expiringSet.remove('set', MANY)).toBe(MANY.length);
    });

    it('the names of scheduled deletions', async () => {
      const store = openRedisCacheStore(redis, `large ${kind}`);
      await store.deletions.schedule(MANY, 3_600_000);
      expect(await admin.zcard(`large ${kind}:cache-scheduled`)).toBe(MANY.length);
      store.close();
    });
  },
);

it('a client that throws while it sends fails the call, also one that waited for the connection', async () => {
  const client = new Redis(server.url, { keyPrefix: 'throwing:', lazyConnect: true });
  await using app = await startLockApp({ redis: client, cache: { commandTimeout: '10s' } });
  const cache = app.app.get(CacheService);
  await cache.sets.add('set', ['a'], { ttl: '1m' });
  client.disconnect(true);
  await once(client, 'close');
  const waiting = cache.sets.add('set', ['b'], { ttl: '1m' });
  const tooMuch = () => {
    throw new RangeError('Too much');
  };
  Object.assign(client, { call: tooMuch, getBuffer: tooMuch });
  await expect(waiting).rejects.toThrow('Too much');
  await expect(cache.sets.add('set', ['c'], { ttl: '1m' })).rejects.toThrow('Too much');
  await expect(cache.get('key', { onRedisError: 'throw' })).rejects.toThrow('Too much');
  for (const name of ['call', 'getBuffer']) Reflect.deleteProperty(client, name);
  await eventually(async () =>
    cache.sets.add('set', ['d'], { ttl: '1m' }).then(
      () => true,
      () => false,
    ),
  );
  client.disconnect();
});
