import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheOptions, CacheService } from 'nest-redis-lock';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { FirstLevel } from '../../../../lib/cache/values/first-level.js';
import {
  type CacheInstance,
  clientWithBusThrough,
  closeCaches,
  openCache,
  openCaches,
} from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { bound, read, startRedis } from '../../../support/one-redis.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('several applications', () => {
  let server: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];
  let caches: CacheService[];
  let key: string;
  let tests = 0;

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
    instances = await openCaches(3, server.port, { l1: { ttl: '1m' } });
    caches = instances.map(({ cache }) => cache);
  });
  beforeEach(() => (key = `key:${++tests}`));
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await server.stop();
  });

  async function openFronted(l1: Required<CacheOptions>['l1'], port = server.port): Promise<CacheInstance> {
    return openCache({ redis: { host: '127.0.0.1', port, retryStrategy: () => 10 }, cache: { l1 } });
  }

  /** Reads the key in all applications, so that each has it in its first level. */
  async function keepEverywhere(value: unknown, name = key): Promise<void> {
    for (const cache of caches) expect(await cache.getOrSet(name, () => value)).toBe(value);
    for (const cache of caches) expect(await firstLevelHits(cache, () => cache.getOrSet(name, () => 'none'))).toBe(1);
  }

  async function firstLevelHits(cache: CacheService, work: () => Promise<unknown>): Promise<number> {
    const before = cache.stats().firstLevelHits;
    await work();
    return cache.stats().firstLevelHits - before;
  }

  describe('the first level of several applications', () => {
    it.each([
      ['invalidate', (cache: CacheService) => cache.invalidate(key)],
      ['del', (cache: CacheService) => cache.del([key, 'other'])],
      ['set', (cache: CacheService) => cache.set(key, 'new')],
      ['mset', (cache: CacheService) => cache.mset({ [key]: 'new' })],
      ['mutate', (cache: CacheService) => cache.mutate(key, async () => {})],
      ['deleteByPrefix', (cache: CacheService) => cache.deleteByPrefix(key.slice(0, -1))],
      ['deleteByPattern', (cache: CacheService) => cache.deleteByPattern('*ey:*')],
      ['flush', (cache: CacheService) => cache.flush('', async () => {})],
    ])('forgets what another one changes: %s', async (_, change) => {
      await keepEverywhere('old');
      await change(caches[0]!);
      await Promise.all(
        caches.map((cache) =>
          eventually(async () => (await cache.getOrSet(key, () => 'new')) === 'new', { within: 1_500, every: 1 }),
        ),
      );
    });

    it('forgets the values of a tag, and no others', async () => {
      const tagged = () => Promise.all(caches.map((cache) => cache.getOrSet(key, () => 'old', { tags: ['a', 'b'] })));
      await tagged();
      await tagged();
      await keepEverywhere('untouched', `${key}:untouched`);
      await caches[0]!.deleteByTag('b');
      const renewed = () => Promise.all(caches.map((cache) => cache.getOrSet(key, () => 'new', { tags: ['a', 'b'] })));
      await eventually(async () => (await renewed()).every((value) => value === 'new'), { within: 1_500, every: 1 });
      await keepEverywhere('untouched', `${key}:untouched`);
    });

    it('is that of a fresh value at once where its own application writes', async () => {
      for (let version = 0; version < 50; version++) {
        const cache = caches[version % 3]!;
        await cache.invalidate(key);
        expect(await cache.getOrSet(key, () => version)).toBe(version);
        expect(await cache.get(key)).toBe(version);
      }
    });

    it('has nothing old 100 ms after its messages come again, whatever it missed', async () => {
      for (let time = 0; time < 5; time++) {
        await keepEverywhere('old', `${key}:${time}`);
        const flushes = caches.map((cache) => cache.stats().firstLevelFlushes);
        await redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
        await caches[0]!.invalidate(`${key}:${time}`);
        await eventually(() =>
          instances.every(
            ({ engine }, index) => engine.busConnected && engine.stats().firstLevelFlushes > flushes[index]!,
          ),
        );
        await sleep(100);
        for (const cache of caches) expect(await cache.getOrSet(`${key}:${time}`, () => 'new')).toBe('new');
      }
    });

    it('is not used while messages may be missed', async () => {
      const proxy = await FaultProxy.start(server.port);
      const apart = await openFronted({}, proxy.port);
      await apart.cache.getOrSet(key, () => 'old');
      expect(apart.cache.stats().firstLevelSize).toBe(1);
      proxy.reset();
      await eventually(() => !apart.engine.busConnected, { every: 1 });
      expect(apart.cache.stats().firstLevelSize).toBe(0);
      await eventually(() => apart.engine.busConnected);
      await apart.close();
      await proxy.stop();
    });

    it('notices a connection that is dead without a word, and is empty by then', async () => {
      const proxy = await FaultProxy.start(server.port);
      const apart = await openFronted({ ttl: '1m' }, proxy.port);
      await apart.cache.getOrSet(key, () => 'old');
      proxy.silence();
      await caches[0]!.invalidate(key);
      await eventually(async () => (await apart.cache.getOrSet(key, () => 'new')) === 'new', { within: 20_000 });
      await eventually(() => apart.engine.busConnected, { within: 20_000 });
      await apart.close();
      await proxy.stop();
    });
  });

  describe('a slow read', () => {
    it('is not kept when a message of its key was heard since it began (Lettuce #3481)', async () => {
      const proxy = await FaultProxy.start(server.port);
      const client = clientWithBusThrough({ port: proxy.port }, server.port);
      const apart = await openCache({ redis: client, cache: { l1: {}, commandTimeout: '20s' } });
      await caches[0]!.set(key, 'old');
      const marker = `${key}:marker`;
      await apart.cache.getOrSet(marker, () => 'kept');
      expect(apart.cache.stats().firstLevelSize).toBe(1);
      proxy.hold('reply');
      const slow = apart.cache.getOrSet(key, () => 'never');
      await eventually(() => proxy.holds, { every: 1 });
      await caches[0]!.invalidate(key);
      // Messages come in their order: when this one was heard, that of the key was.
      await caches[0]!.invalidate(marker);
      await eventually(() => apart.cache.stats().firstLevelSize === 0, { every: 1 });
      proxy.heal();
      expect(await slow).toBe('old');
      expect(apart.cache.stats().firstLevelSize).toBe(0);
      expect(await apart.cache.getOrSet(key, () => 'new')).toBe('new');
      await apart.close();
      client.disconnect();
      await proxy.stop();
    });

    it('and a load are not kept where the key was invalidated between the commit and its answer', async () => {
      const [loading, writing] = caches as [CacheService, CacheService];
      for (let time = 0; time < 200; time++) {
        const name = `${key}:${time}`;
        const load = loading.getOrSet(name, () => 'old');
        const invalidations = (async () => {
          for (let again = 0; again < 4; again++) await writing.invalidate(name);
        })();
        await Promise.all([load, invalidations]);
      }
      await sleep(50);
      const values = await Promise.all(Array.from({ length: 200 }, (_, time) => redis.exists(`cache:${key}:${time}`)));
      for (const [time, exists] of values.entries()) {
        const found = await loading.getOrSet(`${key}:${time}`, () => 'new');
        expect(found).toBe(exists ? 'old' : 'new');
      }
    });
  });

  describe('the first level is bounded', () => {
    it('by its number of values', async () => {
      const small = await openFronted({ max: 10 });
      for (let index = 0; index < 50; index++) await small.cache.getOrSet(`${key}:${index}`, () => index);
      expect(small.cache.stats()).toMatchObject({ firstLevelSize: 10, firstLevelEvictions: 40 });
      await small.close();
    });

    it('by the bytes of its values, and does without one that is greater than all of them', async () => {
      const small = await openFronted({ maxBytes: 10_000 });
      for (let index = 0; index < 50; index++) await small.cache.getOrSet(`${key}:${index}`, () => 'x'.repeat(1_000));
      const { firstLevelSize } = small.cache.stats();
      expect(firstLevelSize).toBeGreaterThanOrEqual(6);
      expect(firstLevelSize).toBeLessThanOrEqual(10);
      await small.cache.getOrSet(`${key}:great`, () => 'x'.repeat(20_000), { tags: ['great'] });
      expect(await small.cache.getOrSet(`${key}:great`, () => 'none', { tags: ['great'] })).toHaveLength(20_000);
      expect(small.cache.stats().firstLevelSize).toBe(firstLevelSize);
      await small.close();
    });

    it('by the ttl of its values in Redis, also when they are there for long (cacheable #67)', async () => {
      const [first, second] = caches as [CacheService, CacheService];
      await first.getOrSet(key, () => 'old', { ttl: 3_000, jitter: 0 });
      await eventually(async () => (await redis.pttl(`cache:${key}`)) <= 2_000);
      expect(await second.getOrSet(key, () => 'none')).toBe('old');
      await eventually(async () => (await redis.exists(`cache:${key}`)) === 0);
      expect(await second.getOrSet(key, () => 'new')).toBe('new');
    });

    it('by its own ttl', async () => {
      const brief = await openFronted({ ttl: 1_000 });
      await brief.cache.getOrSet(key, () => 1);
      const hits = () => firstLevelHits(brief.cache, () => brief.cache.getOrSet(key, () => 2));
      expect(await hits()).toBe(1);
      await eventually(async () => (await hits()) === 0);
      await brief.close();
    });
  });
});

describe('the truth of a first level', () => {
  startRedis();

  describe('The first level', () => {
    it('has no value that a strong read has loaded or found', async () => {
      using scripted = scriptedCache({ l1: {} });
      const { cache, engine } = scripted;
      const strong = { consistency: 'strong' } as const;
      expect(await cache.getOrSet('k', () => 'value', strong)).toBe('value');
      expect(await cache.getOrSet('k', () => 'another', strong)).toBe('value');
      expect(engine.firstLevel?.get('k')).toBeUndefined();
      expect(await cache.getOrSet('k', () => 'another')).toBe('value');
      expect(engine.firstLevel?.get('k')?.value).toBe('value');
    });

    it('is not asked by get where reads are strong', async () => {
      const store = memoryCacheStore();
      const listen = store.listen.bind(store);
      store.listen = (listener) => {
        const onInvalidated = () => {};
        listen(
          new Proxy(listener, {
            get: (target, name) => (name === 'onInvalidated' ? onInvalidated : bound(target, name)),
          }),
        );
      };
      using scripted = scriptedCache({ l1: {}, defaults: { consistency: 'strong' } }, store);
      const { cache, engine } = scripted;
      await eventually(() => engine.busConnected);
      await read(cache, 'k', 'old');
      await store.invalidate({ key: 'k' });
      expect(await cache.get('k')).toBeUndefined();
    });

    it.each([true, false])('counts what cannot be read back as absent (serialize: %s)', async (serialize) => {
      const serializer = {
        serialize: (value: unknown) => JSON.stringify(value),
        deserialize: () => {
          throw new Error('cannot be read');
        },
      };
      using scripted = scriptedCache({ serializer, l1: { serialize } });
      const { cache, engine } = scripted;
      await eventually(() => engine.busConnected);
      expect(await read(cache, 'k', 'one')).toBe('one');
      expect(await read(cache, 'k', 'two')).toBe('two');
      expect(await cache.get('k')).toBeUndefined();
    });

    it('remembers no tags of what is too large for it', () => {
      const level = new FirstLevel(
        { max: 10, maxBytes: 1_000, ttl: 10_000, serialize: true, whileAway: 0, bus: 'pubsub' as const },
        () => undefined,
      );
      level.trust('messages');
      for (let index = 0; index < 5; index++) {
        level.keep(`k${index}`, {
          kind: 0,
          expiresAt: Date.now() + 10_000,
          keptStale: false,
          loadTime: undefined,
          ttl: undefined,
          tags: { t: 1 },
          payload: Buffer.alloc(2_000),
        });
      }
      expect((level as unknown as { keysByTag: Map<string, unknown> }).keysByTag.size).toBe(0);
    });

    it('answers nothing after a standstill, until what arrived meanwhile has been read', async () => {
      const level = new FirstLevel(
        { max: 10, maxBytes: 1_000, ttl: 60_000, serialize: true, whileAway: 0, bus: 'pubsub' as const },
        () => 'value',
      );
      level.trust('messages');
      level.keep('k', {
        kind: 0,
        expiresAt: Date.now() + 60_000,
        keptStale: false,
        loadTime: undefined,
        ttl: undefined,
        tags: {},
        payload: Buffer.alloc(1),
      });
      expect(level.get('k')).toBeDefined();
      const until = performance.now() + 1_100;
      while (performance.now() < until);
      expect(level.get('k')).toBeUndefined();
      await eventually(() => level.get('k') !== undefined);
      level.distrust('messages');
    });

    it('is not used once the application has ended', async () => {
      const { cache, engine } = scriptedCache({ l1: {} });
      await eventually(() => engine.busConnected);
      await read(cache, 'k', 'old');
      await engine.stop();
      // A message that was under way when the connection was closed.
      engine.onConnected();
      expect(engine.busConnected).toBe(false);
      expect(await read(cache, 'k', 'new')).toBe('new');
    });
  });

  it('On a Cluster, the first level has nothing old after its connection for messages was cut', async () => {
    const cluster = await startRedisCluster();
    const clients = [cluster.client(), cluster.client()] as const;
    const admins = cluster.servers.map(({ url }) => new Redis(url));
    const [one, two] = (await Promise.all(
      clients.map((redis) => openCache({ redis, cache: { l1: { ttl: '60s' } } })),
    )) as [CacheInstance, CacheInstance];
    try {
      for (const key of ['a', 'b', 'c']) {
        await eventually(() => one.engine.busConnected);
        await read(one.cache, key, 'old');
        const { firstLevelFlushes } = one.cache.stats();
        await Promise.all(admins.map((admin) => admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub')));
        await two.cache.invalidate(key);
        // Once for the loss, and once for the new connection.
        await eventually(() => one.cache.stats().firstLevelFlushes >= firstLevelFlushes + 2);
        expect(await read(one.cache, key, 'new')).toBe('new');
      }
    } finally {
      await Promise.all([one.close(), two.close()]);
      for (const client of [...clients, ...admins]) client.disconnect();
      await cluster.stop();
    }
  });
});
