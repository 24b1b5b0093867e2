import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheOptions, CacheService } from 'nest-redis-lock';
import { type CacheInstance, closeCaches, openCache, openCaches } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('many keys', () => {
  let server: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];
  let [a, b] = [] as unknown as [CacheService, CacheService];
  /** What the batch loader was called with. */
  let calls: (readonly string[])[];

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
    instances = await openCaches(2, server.port);
    [a, b] = instances.map(({ cache }) => cache) as [CacheService, CacheService];
  });
  beforeEach(async () => {
    await redis.flushall();
    calls = [];
  });
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await server.stop();
  });

  const load = async (keys: readonly string[]): Promise<string[]> => {
    calls.push(keys);
    await sleep(5);
    return keys.map((key) => `value of ${key}`);
  };
  const valuesOf = (...keys: string[]) => keys.map((key) => `value of ${key}`);

  describe('getOrSetMany', () => {
    it('loads with one call what is missing, and nothing else', async () => {
      await a.set('2', 'there');
      expect(await a.getOrSetMany(['1', '2', '3'], load)).toEqual(['value of 1', 'there', 'value of 3']);
      expect(await b.getOrSetMany(['3', '2', '1', '4'], load)).toEqual(['value of 3', 'there', ...valuesOf('1', '4')]);
      expect(calls).toEqual([['1', '3'], ['4']]);
    });

    it('answers in the order of the keys, also of those that are given twice, or none', async () => {
      expect(await a.getOrSetMany(['x', 'y', 'x', 'x'], load)).toEqual(valuesOf('x', 'y', 'x', 'x'));
      expect(calls).toEqual([['x', 'y']]);
      expect(await a.getOrSetMany([], load)).toEqual([]);
      expect(calls).toHaveLength(1);
    });

    it('keeps what a Map does not name, and what a list calls undefined, as null', async () => {
      expect(await a.getOrSetMany(['1', '2'], async () => new Map([['2', 'two']]))).toEqual([null, 'two']);
      expect(await a.getOrSetMany(['3', '4'], async () => [undefined, 0])).toEqual([null, 0]);
      expect(await b.getOrSetMany(['1', '2', '3', '4'], load)).toEqual([null, 'two', null, 0]);
      expect(calls).toEqual([]);
      expect(await a.ttl('1')).toBeLessThanOrEqual(33_000);
    });

    it('takes hundreds of keys with one call of the loader, and stores each', async () => {
      const keys = Array.from({ length: 700 }, (_, index) => `many:${index}`);
      expect(await a.getOrSetMany(keys, load)).toEqual(valuesOf(...keys));
      expect(calls).toEqual([keys]);
      expect(await redis.keys('cache:*')).toHaveLength(700);
      expect(await b.mget(keys)).toEqual(valuesOf(...keys));
    });

    it('joins what is being read here, and is joined', async () => {
      const gate = new Gate();
      const single = a.getOrSet('1', () => gate.opened.then(() => 'of the single one'));
      await eventually(() => redis.exists('lease:{cache:1}'));
      const many = a.getOrSetMany(['1', '2'], load);
      await eventually(() => calls.length > 0);
      expect(await a.getOrSet('2', () => 'never')).toBe('value of 2');
      gate.open();
      expect(await many).toEqual(['of the single one', 'value of 2']);
      expect(await single).toBe('of the single one');
      expect(calls).toEqual([['2']]);
    });

    it('loads the others while it waits for what another application loads', async () => {
      const gate = new Gate();
      const other = b.getOrSet('1', () => gate.opened.then(() => 'of b'));
      await eventually(() => redis.exists('lease:{cache:1}'));
      const many = a.getOrSetMany(['1', '2', '3'], load);
      await eventually(async () => (await b.mget(['2', '3'])).every(Boolean));
      gate.open();
      expect(await many).toEqual(['of b', ...valuesOf('2', '3')]);
      await other;
      expect(calls).toEqual([['2', '3']]);
    });

    it('loads what the other application failed to load', async () => {
      const gate = new Gate();
      const other = b.getOrSet('1', () => gate.opened.then(() => Promise.reject(new Error('of b'))));
      await eventually(() => redis.exists('lease:{cache:1}'));
      const many = a.getOrSetMany(['1', '2'], load);
      await eventually(() => calls.length > 0);
      gate.open();
      await expect(other).rejects.toThrow('of b');
      expect(await many).toEqual(valuesOf('1', '2'));
      expect(calls).toEqual([['2'], ['1']]);
    });

    it('in two applications at once loads each key once', async () => {
      const keys = Array.from({ length: 50 }, (_, index) => String(index));
      const [first, second] = await Promise.all([a.getOrSetMany(keys, load), b.getOrSetMany(keys.toReversed(), load)]);
      expect(first).toEqual(valuesOf(...keys));
      expect(second).toEqual(first.toReversed());
      expect(calls.flat().toSorted()).toEqual([...keys].toSorted());
    });

    it('rejects with the error of its loader, frees every lease, and does not take the others along', async () => {
      const failing = () => Promise.reject(new Error('database down'));
      await a.set('there', 1);
      await expect(a.getOrSetMany(['there', '1', '2'], failing)).rejects.toThrow('database down');
      await eventually(async () => (await redis.keys('lease:*')).length === 0);
      expect(await a.getOrSetMany(['1', '2'], load)).toEqual(valuesOf('1', '2'));
    });

    it.each([
      ['too few', async () => ['one'], /returned 1 values for 2 keys; return one for each/],
      ['too many', async () => [1, 2, 3], /returned 3 values for 2 keys/],
      ['nothing', async () => undefined, /returned undefined; return a list .* or a Map/],
      ['an object', async () => ({ 1: 'one' }), /return a list .* or a Map/],
    ])('refuses %s values, and stores none', async (_, loader, message) => {
      const many = a.getOrSetMany(['1', '2'], loader as never);
      await expect(many).rejects.toMatchObject({ code: 'CACHE_CONFIG', message: expect.stringMatching(message) });
      expect(await redis.keys('cache:*')).toEqual([]);
    });

    it('lets its loader say of all what getOrSet says of one', async () => {
      await a.getOrSetMany(['1', '2'], async (keys, { setTags, setTtl }) => {
        setTags(['both']);
        setTtl('10s');
        return keys;
      });
      expect(await a.ttl('1')).toBeLessThanOrEqual(11_000);
      await b.deleteByTag('both');
      expect(await a.mget(['1', '2'])).toEqual([undefined, undefined]);
      await a.getOrSetMany(['3'], async (keys, { skip }) => (skip(), keys));
      expect(await a.get('3')).toBeUndefined();
    });

    it('fences each of its keys by itself', async () => {
      const gate = new Gate();
      const many = a.getOrSetMany(['1', '2'], async (keys) => {
        await gate.opened;
        return keys;
      });
      await eventually(async () => (await redis.exists('lease:{cache:1}', 'lease:{cache:2}')) === 2);
      await b.invalidate('1');
      gate.open();
      await many;
      // The process that loads sees it once it is stored, and only then the others do.
      for (const each of [a, b]) expect(await each.mget(['1', '2'])).toEqual([undefined, '2']);
    });

    it('does not wait for itself when its loader asks for one of its keys', async () => {
      // Longer than any test: no limit ends a wait for itself.
      const options = { loaderTimeout: '1h', lock: { wait: '1h', onTimeout: 'throw' } } as const;
      const many = a.getOrSetMany(
        ['1', '2', '3'],
        async (keys) => {
          const inner = await Promise.all(keys.map((key) => a.getOrSet(key, () => `inner ${key}`, options)));
          return inner.map((value) => `outer ${value}`);
        },
        options,
      );
      expect(await many).toEqual(['outer inner 1', 'outer inner 2', 'outer inner 3']);
    });

    it('gives its loader the keys of a namespace without their prefix', async () => {
      const shop = a.namespace('shop');
      expect(await shop.getOrSetMany(['1'], load)).toEqual(['value of 1']);
      expect(await shop.getOrSetMany(['2'], async ([key]) => [await shop.getOrSet(key!, () => 'inner')])).toEqual([
        'inner',
      ]);
      expect(await b.get('shop:1')).toBe('value of 1');
    });
  });

  describe('getOrSetMany loads with one call', () => {
    const keys = Array.from({ length: 300 }, (_, index) => `many:${index}`);

    it.each([
      ['stale values', { ttl: 20, staleTtl: '1h', jitter: 0 }],
      ['values that are refreshed ahead', { ttl: '1m', refreshAhead: 0.000_1, jitter: 0 }],
    ] as const)('%s in the background', async (_, options) => {
      await a.getOrSetMany(keys, load, options);
      await sleep(40);
      calls = [];
      expect(await a.getOrSetMany(keys, load, options)).toEqual(valuesOf(...keys));
      await eventually(() => calls.length > 0);
      await eventually(async () => (await redis.keys('lease:*')).length === 0);
      expect(calls.map((call) => call.toSorted())).toEqual([keys.toSorted()]);
    });

    it('what has no value at once, and what is stale after it', async () => {
      await a.getOrSetMany(keys.slice(0, 100), load, { ttl: 20, staleTtl: '1h', jitter: 0 });
      await sleep(40);
      calls = [];
      expect(await a.getOrSetMany(keys, load, { staleTtl: '1h' })).toEqual(valuesOf(...keys));
      await eventually(async () => (await redis.keys('lease:*')).length === 0 && calls.flat().length === keys.length);
      expect(calls.length).toBeLessThanOrEqual(2);
    });

    it('what another process failed to load', async () => {
      const gate = new Gate();
      const other = b.getOrSetMany(keys, () => gate.opened.then(() => Promise.reject(new Error('of b'))));
      await eventually(async () => (await redis.keys('lease:*')).length === keys.length);
      const waiting = a.getOrSetMany(keys, load);
      await eventually(() => a.stats().waits > 0);
      gate.open();
      await expect(other).rejects.toThrow('of b');
      expect(await waiting).toEqual(valuesOf(...keys));
      expect(calls.flat().toSorted()).toEqual(keys.toSorted());
      // Messages arrive within a few milliseconds; it finds out about the other keys by itself.
      expect(calls.length).toBeLessThanOrEqual(10);
    });
  });

  it('getOrSetMany keeps to the keys and tags of its call, whatever becomes of their lists', async () => {
    const [keys, tags] = [['one', 'two'], ['first']];
    const loading = a.getOrSetMany(
      keys,
      async (asked) => {
        const values = [...asked];
        (asked as string[]).length = 0;
        return values;
      },
      { tags },
    );
    keys.length = 0;
    tags.push('later');
    expect(await loading).toEqual(['one', 'two']);
    expect(await a.inspect('one')).toMatchObject({ state: 'fresh', tags: ['first'] });
  });

  it('getOrSetMany of tens of thousands of keys stores each, and leaves room for others', async () => {
    const keys = Array.from({ length: 20_000 }, (_, index) => `many:${index}`);
    const before = a.stats();
    let others = 0;
    const done = a
      .getOrSetMany(keys, load, { loaderTimeout: '5m', lock: { lease: '5m' } })
      .finally(() => (others = -others));
    while (others >= 0 && others < 1_000_000) {
      await a.getOrSet(`other:${others}`, () => 'value');
      others += 1;
    }
    expect(await done).toEqual(valuesOf(...keys));
    expect(calls.map(({ length }) => length)).toEqual([keys.length]);
    expect((await a.mget(keys)).filter((value) => value === undefined)).toEqual([]);
    expect(a.stats().breakerOpened).toBe(before.breakerOpened);
    expect(a.stats().unstoredLoads).toBe(before.unstoredLoads);
    expect(-others).toBeGreaterThan(10);
  });
});

describe('what CacheService.inspect shows', () => {
  let server: RedisServer;
  let cluster: RedisCluster;

  beforeAll(async () => {
    [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
  });
  afterAll(() => Promise.all([server.stop(), cluster.stop()]));

  async function onCluster() {
    const client = cluster.client();
    const instance = await openCache({ redis: client });
    const close = async () => {
      await instance.close();
      client.disconnect();
    };
    return { ...instance, close, [Symbol.asyncDispose]: close };
  }

  const onRedis = (prefix: string, cache: CacheOptions = {}) => openCache({ redis: server.url, prefix, cache });
  const MINUTE = 60_000;

  describe.each([
    ['on Redis', () => onRedis('plain')],
    ['on Redis, with a first level', () => onRedis('fronted', { l1: {} })],
    [
      'with a serializer of the application',
      () =>
        onRedis('own', {
          serializer: {
            name: 'json',
            serialize: JSON.stringify,
            deserialize: (data) => JSON.parse(data.toString()) as unknown,
          },
        }),
    ],
    ['on a Cluster', onCluster],
    ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
  ])('CacheService.inspect %s', (_, open) => {
    it('is null where there is nothing', async () => {
      await using instance = await open();
      expect(await instance.cache.inspect('nothing')).toBeNull();
    });

    it('shows a value that is fresh, and until when it is kept', async () => {
      await using instance = await open();
      const { cache } = instance;
      await cache.set('fresh', 'x'.repeat(500), { ttl: '5m', jitter: 0 });
      const info = await cache.inspect('fresh');
      expect(info).toEqual({
        state: 'fresh',
        freshFor: expect.any(Number),
        keptFor: info?.freshFor,
        bytes: expect.any(Number),
        tags: [],
        invalidatedTags: [],
        barrier: false,
      });
      expect(info?.freshFor).toBeGreaterThan(4 * MINUTE);
      expect(info?.freshFor).toBeLessThanOrEqual(5 * MINUTE);
      expect(info?.bytes).toBeGreaterThanOrEqual(500);
      expect(info?.bytes).toBeLessThan(600);
      await cache.incr('count', { ttl: '5m' });
      expect(await cache.inspect('count')).toMatchObject({ state: 'fresh', bytes: 1 });
    });

    it('shows a value that is stale, by time and by a soft expiry', async () => {
      await using instance = await open();
      const { cache } = instance;
      const kept = { ttl: '5m', staleTtl: '1h', jitter: 0, tags: ['a', 'b'] } as const;
      await cache.getOrSet('stale', () => 'old', kept);
      const before = await cache.inspect('stale');
      expect(before).toMatchObject({ state: 'fresh', tags: ['a', 'b'], invalidatedTags: [] });
      expect(before?.freshFor).toBeLessThanOrEqual(5 * MINUTE);
      expect(before?.keptFor).toBeGreaterThan(60 * MINUTE);
      await cache.expireByTag('b');
      expect(await cache.inspect('stale')).toMatchObject({ state: 'stale', freshFor: 0, invalidatedTags: [] });
      await cache.getOrSet('timed', () => 'old', { ttl: 1, staleTtl: '1h', jitter: 0 });
      await eventually(async () => (await cache.inspect('timed'))?.state === 'stale');
      expect((await cache.inspect('timed'))?.keptFor).toBeGreaterThan(30 * MINUTE);
      await cache.getOrSet('softly', () => 'old', { ...kept, tags: [] });
      await cache.expire('softly', { soft: true });
      expect(await cache.inspect('softly')).toMatchObject({ state: 'stale', freshFor: 0, tags: [] });
    });

    it('shows a value as invalidated whose tag was, although it is still stored', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace('shop');
      await cache.set('tagged', 'old', { ttl: '5m', tags: ['kept', 'gone'] });
      await cache.deleteByTag('gone');
      expect(await cache.get('tagged')).toBeUndefined();
      const info = await cache.inspect('tagged');
      expect(info).toMatchObject({ state: 'invalidated', freshFor: 0, invalidatedTags: ['shop:gone'] });
      expect(info?.tags).toEqual(['shop:kept', 'shop:gone']);
      expect(info?.keptFor).toBeGreaterThan(0);
      await cache.del('tagged');
      expect(await cache.inspect('tagged')).toBeNull();
    });

    it('shows who loads the value, and writes that are under way', async () => {
      await using instance = await open();
      const { cache } = instance;
      const gate = new Gate();
      const loading = cache.getOrSet('slow', async () => {
        await gate.opened;
        return 'loaded';
      });
      await eventually(async () => (await cache.inspect('slow')) !== null);
      const info = await cache.inspect('slow');
      expect(info).toMatchObject({ state: 'absent', bytes: 0, keptFor: 0, barrier: false });
      expect(info?.loading).toBeGreaterThan(0);
      gate.open();
      await loading;
      expect(await cache.inspect('slow')).toMatchObject({ state: 'fresh' });
      expect(await cache.inspect('slow')).not.toHaveProperty('loading');
      await cache.mutate('written', async () => {
        expect(await cache.inspect('written')).toMatchObject({ state: 'absent', barrier: true });
      });
      await eventually(async () => (await cache.inspect('written'))?.barrier !== true);
    });
  });

  it('shows data without an envelope as unreadable', async () => {
    await using instance = await onRedis('foreign');
    const redis = new Redis(server.url);
    for (const foreign of ['text', '', '12\n34', '\u0001\u0050zzz{"g":\n', 'y'.repeat(100_000)]) {
      await redis.set('foreign:cache:key', foreign);
      expect(await instance.cache.inspect('key')).toMatchObject({
        state: 'unreadable',
        keptFor: Infinity,
        bytes: foreign.length,
      });
      expect(await instance.cache.get('key')).toBeUndefined();
    }
    redis.disconnect();
  });

  it('asks Redis once, and once more for the tags of a value', async () => {
    await using instance = await onRedis('counted');
    await instance.cache.set('plain', 'x', { ttl: '5m' });
    await instance.cache.set('tagged', 'x', { ttl: '5m', tags: ['a', 'b', 'c'] });
    const redis = new Redis(server.url);
    const monitor = await redis.monitor();
    const seen: string[] = [];
    monitor.on('monitor', (_time: string, [command = '', ...args]: string[], source: string) => {
      if (source !== 'lua') seen.push([command.toLowerCase(), ...args].join(' '));
    });
    const ended = async (mark: string) => {
      await redis.echo(mark);
      await eventually(() => seen.includes(`echo ${mark}`));
      return seen.splice(0).filter((line) => line.includes('counted:'));
    };
    await instance.cache.inspect('plain');
    expect(await ended('one')).toHaveLength(1);
    await instance.cache.inspect('tagged');
    // The reads of the tags are sent together.
    const [script, ...reads] = await ended('two');
    expect(script).toMatch(/^eval/);
    const tags = ['a', 'b', 'c'].map((tag) => `counted:cache-tag:${tag}`);
    expect(reads.flatMap((line) => line.split(' ').slice(1))).toEqual(tags);
    monitor.disconnect();
    redis.disconnect();
  });
});
