import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { jest } from '@jest/globals';
import clusterKeySlot from 'cluster-key-slot';
import fc from 'fast-check';
import { Cluster, Redis } from 'ioredis';
import { ExpiringMap } from '../../../../lib/backends/memory/expiring-map.js';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { redisGlob } from '../../../../lib/keys/redis-glob.js';
import { type CacheInstance, closeCaches, openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { RecordingCacheListener } from '../../../support/recording-cache-listener.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

/** Keys of characters that mean something to Redis Cluster, to globs, to our own escapes, or to nobody. */
const awkward = fc
  .array(
    fc.constantFrom('{', '}', '%', '%7D', '%25', '7', 'D', '*', '?', '[', ']', '\\', ':', 'a', 'é', '😀', ' ', '\n'),
    {
      minLength: 1,
      maxLength: 12,
    },
  )
  .map((parts) => parts.join(''));

describe('on one server', () => {
  let server: RedisServer;
  let redis: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
  });
  beforeEach(() => redis.flushall());
  afterAll(async () => {
    redis.disconnect();
    await server.stop();
  });

  it('no two keys are one: each has its own value, lease, and barrier', async () => {
    const keys = new RedisCacheKeys('shop');
    fc.assert(
      fc.property(awkward, awkward, (one, other) => {
        fc.pre(one !== other);
        expect(keys.value(one)).not.toBe(keys.value(other));
        expect(keys.lease(one)).not.toBe(keys.lease(other));
        expect(keys.barrier(one)).not.toBe(keys.barrier(other));
      }),
      { numRuns: 2_000 },
    );
  });

  it('what belongs together lies in one slot, whatever the key and the prefixes, as Redis counts slots', async () => {
    const prefix = fc.constantFrom(undefined, 'shop', 'a:b', 'a%');
    const clientPrefix = fc.constantFrom('', 'client:', 'c%7D');
    await fc.assert(
      fc.asyncProperty(awkward, prefix, clientPrefix, async (key, ours, theirs) => {
        const keys = new RedisCacheKeys(ours, theirs);
        const names = [keys.value(key), keys.lease(key), keys.barrier(key)].map((name) => theirs + name);
        expect(new Set(names.map((name) => clusterKeySlot(name))).size).toBe(1);
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ['plain', {}],
    ['with a prefix', { prefix: 'shop' }],
    ['with the keyPrefix of its client', { redis: { keyPrefix: 'mine:' } }],
    ['with both', { prefix: 'shop', redis: { keyPrefix: 'mine:' } }],
  ])(
    'every operation finds its own keys again, %s',
    async (_, { prefix, redis: options }: { prefix?: string; redis?: object }) => {
      const both = {
        redis: { host: '127.0.0.1', port: server.port, ...options },
        cache: { l1: {} },
        ...(prefix && { prefix }),
      };
      await using first = await openCache(both);
      await using second = await openCache({ ...both, cache: {} });
      await fc.assert(
        fc.asyncProperty(fc.uniqueArray(awkward, { minLength: 2, maxLength: 5 }), async (keys) => {
          for (const key of keys) {
            // It is stored by then, for the other application too.
            const load = first.cache.getOrSet(key, () => `of ${key}`, { consistency: 'strong' });
            expect(await load).toBe(`of ${key}`);
          }
          expect(await second.cache.mget(keys)).toEqual(keys.map((key) => `of ${key}`));
          const [gone, ...rest] = keys as [string, ...string[]];
          await second.cache.invalidate(gone);
          expect(await second.cache.mget(keys)).toEqual([undefined, ...rest.map((key) => `of ${key}`)]);
          expect(await first.cache.deleteByPrefix('')).toBe(rest.length);
          expect(await redis.keys('*cache:*')).toEqual([]);
        }),
        { numRuns: 100 },
      );
    },
  );

  it('refuses half of a surrogate pair wherever a name is given: Redis would take all of them for one', async () => {
    await using instance = await openCache({ redis: server.url });
    const { cache } = instance;
    const [half, whole] = ['\ud83d', '\ud83d\ude00'];
    const options = { ttl: '1m' } as const;
    const uses: ((name: string) => unknown)[] = [
      (name) => cache.get(name),
      (name) => cache.getOrSet(name, () => 1),
      (name) => cache.getOrSetMany([name], async () => [1]),
      (name) => cache.set(`x${name}`, 1),
      (name) => cache.invalidate([name]),
      (name) => cache.deleteByTag(name),
      (name) => cache.deleteByPrefix(name),
      (name) => cache.deleteByPattern(`${name}*`),
      (name) => cache.key('product', name),
      (name) => cache.namespace(name),
      (name) => cache.sets.add(name, 'member', options),
      (name) => cache.expiringSet.members(name),
    ];
    for (const use of uses) {
      await expect((async () => use(`${half}:${half}`))()).rejects.toMatchObject({ code: 'CACHE_KEY' });
      await use(whole);
    }
    const others: ((name: string) => unknown)[] = [
      (name) => cache.getOrSet('tagged', () => 1, { tags: [name] }),
      (name) => cache.sets.add('members', name, options),
      (name) => cache.sets.has('members', name),
      (name) => cache.expiringSet.add('lives', [name], '1m'),
      (name) => cache.bloomFilter(name, { capacity: 10 }),
    ];
    for (const use of others) {
      await expect((async () => use(half))()).rejects.toMatchObject({ code: 'CACHE_CONFIG' });
      await use(whole);
    }
  });

  it('deleteByPrefix deletes what begins with it, and nothing else (type-cacheable *key*)', async () => {
    await using app = await openCache({ redis: server.url, prefix: 'shop', cache: {} });
    await using neighbour = await openCache({ redis: server.url, prefix: 'shopping', cache: {} });
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(awkward, { minLength: 1, maxLength: 8 }),
        awkward,
        fc.nat(6),
        async (keys, cut, length) => {
          const prefix = length === 0 ? cut : keys[0]!.slice(0, length);
          fc.pre(Buffer.from(prefix).toString() === prefix);
          await app.cache.mset(new Map(keys.map((key) => [key, 'there'])));
          await neighbour.cache.mset(new Map(keys.map((key) => [key, 'neighbour'])));
          await app.cache.deleteByPrefix(prefix);
          const [beginning, others] = [
            keys.filter((key) => key.startsWith(prefix)),
            keys.filter((key) => !key.startsWith(prefix)),
          ];
          expect(await app.cache.mget(beginning)).toEqual(beginning.map(() => undefined));
          // One that may end within an escape may take more along.
          if (!prefix.includes('%')) expect(await app.cache.mget(others)).toEqual(others.map(() => 'there'));
          expect(await neighbour.cache.mget(keys)).toEqual(keys.map(() => 'neighbour'));
          await redis.flushall();
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe('on a Redis Cluster', () => {
  let cluster: RedisCluster;

  beforeAll(async () => (cluster = await startRedisCluster()));
  afterAll(() => cluster.stop());

  it.each([
    ['plain', () => cluster.client()],
    [
      'with a keyPrefix',
      () =>
        new Cluster(
          cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })),
          { keyPrefix: 'mine:' },
        ),
    ],
    [
      'with a keyPrefix among its redisOptions',
      () =>
        new Cluster(
          cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })),
          { redisOptions: { keyPrefix: 'mine:' } },
        ),
    ],
  ])(
    'values of all slots are read, fenced, and deleted, by a client %s (bentocache #32, #67, #92)',
    async (_, connect) => {
      const clients = [connect(), connect()];
      const apps = await Promise.all(
        clients.map((redis) => openCache({ redis, cache: { l1: {}, commandTimeout: '20s' } })),
      );
      const [first, second] = apps as [CacheInstance, CacheInstance];
      const keys = [
        ...Array.from({ length: 60 }, (__, index) => `key:${index}`),
        '{tag}x',
        'a}b',
        'a{}b',
        '{}',
        '}{',
        '{a}{b}',
      ];
      const load = async (batch: readonly string[]) => batch.map((key) => `of ${key}`);
      // What a process has loaded it stores after it has answered.
      const stored = () => Promise.all(keys.map((key) => first.cache.has(key)));
      try {
        expect(await first.cache.getOrSetMany(keys, load)).toEqual(await load(keys));
        await stored();
        expect(await second.cache.mget(keys)).toEqual(await load(keys));
        await second.cache.invalidate(keys);
        await first.cache.getOrSetMany(keys, load, { tags: ['one', 'two'] });
        await stored();
        expect(await second.cache.mget(keys)).toEqual(await load(keys));
        await second.cache.deleteByTag('two');
        expect(await second.cache.mget(keys)).toEqual(keys.map(() => undefined));
        await first.cache.mset(new Map(keys.map((key) => [key, 1])));
        await second.cache.mutate(keys, async () => {});
        await first.cache.mset(new Map(keys.map((key) => [key, 1])));
        expect(await second.cache.deleteByPrefix('')).toBe(keys.length);
        expect(first.cache.stats().redisErrors + second.cache.stats().redisErrors).toBe(0);
      } finally {
        await closeCaches(apps);
        for (const client of clients) client.disconnect();
      }
    },
  );
});

it('matches what Redis matches', async () => {
  await using server = await startRedisServer();
  const client = new Redis(server.url);
  const letters = fc.constantFrom('a', 'b', 'c', 'z', '-', ']', '[', '^', '\\', '*', '?', 'ü', '.', '\n');
  // Behind a prefix, as the keys of the cache are.
  const texts = fc.sample(fc.string({ unit: letters, maxLength: 5 }), 1_000).map((text) => `cache:${text}`);
  await client.mset(texts.flatMap((text) => [text, '']));
  try {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: letters, maxLength: 8 }), async (glob) => {
        const pattern = `cache:${glob}`;
        // Whether such a byte is below or above all others depends on the machine that Redis runs on.
        fc.pre(!/-ü|ü-/.test(pattern));
        const expected = (await client.keys(pattern)).toSorted();
        expect([...new Set(texts)].filter(redisGlob(pattern)).toSorted()).toEqual(expected);
      }),
      { numRuns: 1_000 },
    );
  } finally {
    client.disconnect();
  }
});

it('lives by the clock that a test runner replaces', async () => {
  jest.useFakeTimers();
  try {
    const store = memoryCacheStore();
    const listener = new RecordingCacheListener();
    store.listen(listener);
    await store.set({ key: 'a', data: 'x', ttl: 60_000 });
    jest.advanceTimersByTime(59_999);
    expect(await store.read('a')).toEqual(Buffer.from('x'));
    jest.advanceTimersByTime(1);
    expect(await store.read('a')).toBeNull();
    expect(listener.heard).toEqual(['connected', 'invalidated a']);
  } finally {
    jest.useRealTimers();
  }
});

it('is a world of its own', async () => {
  const [one, another] = [memoryCacheStore(), memoryCacheStore()];
  await one.set({ key: 'a', data: 'x', ttl: 60_000 });
  expect(await another.read('a')).toBeNull();
});

it('forgets what has ended and is never asked for again', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const map = new ExpiringMap<object>();
  const [ended, lives] = (() => {
    const values = [{}, {}] as const;
    map.set('ended', values[0], 1);
    map.set('lives', values[1], 60_000);
    return values.map((value) => new WeakRef(value));
  })();
  await eventually(() => {
    for (let index = 0; index < 5_000; index++) map.set(String(index), {}, 60_000);
    collectGarbage();
    return ended?.deref() === undefined;
  });
  expect(lives?.deref()).toBe(map.get('lives'));
  expect(map.get('lives')).toBeDefined();
});
