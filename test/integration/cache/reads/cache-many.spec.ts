import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { closeCaches, openCaches, type CacheInstance } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { quietTimeSince } from '../../../support/quiet-time.js';

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
    expect(await redis.dbsize()).toBe(700);
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
    expect(await b.mget(['1', '2'])).toEqual([undefined, '2']);
  });

  it('does not wait for itself when its loader asks for one of its keys', async () => {
    const begun = performance.now();
    const many = a.getOrSetMany(['1', '2', '3'], async (keys) => {
      const inner = await Promise.all(keys.map((key) => a.getOrSet(key, () => `inner ${key}`)));
      return inner.map((value) => `outer ${value}`);
    });
    expect(await many).toEqual(['outer inner 1', 'outer inner 2', 'outer inner 3']);
    expect(quietTimeSince(begun)).toBeLessThan(1_000);
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

it('getOrSetMany of tens of thousands of keys stores each, and leaves room for others', async () => {
  const keys = Array.from({ length: 20_000 }, (_, index) => `many:${index}`);
  const before = a.stats();
  let others = 0;
  const done = a.getOrSetMany(keys, load).finally(() => (others = -others));
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
}, 60_000);
