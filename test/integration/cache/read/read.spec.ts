import { AsyncLocalStorage } from 'node:async_hooks';
import { Redis } from 'ioredis';
import { type CacheEntryOptions, CacheService } from 'nest-redis-lock';
import { BloomFilter } from '../../../../lib/cache/store/bloom-filter.js';
import { type CacheInstance, closeCaches, openCaches } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

/** What a read answers, and how often its loader had to be called for it. */
interface Answer {
  readonly value: unknown;
  readonly loads: number;
}

let server: RedisServer;
let redis: Redis;
let instances: CacheInstance[];
/** Two applications without a first level, and one with. */
let [plain, other, fronted] = [] as unknown as [CacheService, CacheService, CacheService];

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  instances = [...(await openCaches(2, server.port)), ...(await openCaches(1, server.port, { l1: {} }))];
  [plain, other, fronted] = instances.map(({ cache }) => cache) as [CacheService, CacheService, CacheService];
});
beforeEach(() => redis.flushall());
afterAll(async () => {
  await closeCaches(instances);
  redis.disconnect();
  await server.stop();
});

async function read(cache: CacheService, key: string, value: unknown, options?: CacheEntryOptions): Promise<Answer> {
  let loads = 0;
  const found = await cache.getOrSet(
    key,
    () => {
      loads += 1;
      return value;
    },
    options,
  );
  return { value: found, loads };
}

describe('a value', () => {
  it('is loaded once, and then read by every application', async () => {
    expect(await read(plain, 'product:1', { price: 3 })).toEqual({ value: { price: 3 }, loads: 1 });
    for (const cache of [plain, other, fronted, fronted]) {
      expect(await read(cache, 'product:1', 'another')).toEqual({ value: { price: 3 }, loads: 0 });
    }
    expect(await redis.keys('cache:*')).toEqual(['cache:product:1']);
  });

  it.each([[0], [false], [''], [Number.NaN], [null], [undefined], [[]], [0n]])(
    'that is %p is a value like any other, at both levels',
    async (falsy) => {
      const key = `falsy:${typeof falsy}:${String(falsy)}`;
      const second = { value: falsy, loads: 0 };
      expect(await read(plain, key, falsy)).toEqual({ value: falsy, loads: 1 });
      for (const cache of [plain, fronted, fronted]) expect(await read(cache, key, 'other')).toEqual(second);
      expect(await plain.get(key)).toEqual(falsy);
      expect(await plain.mget([key])).toEqual([falsy]);
      expect(await plain.has(key)).toBe(true);
    },
  );

  it.each([[{ nullTtl: '1s' }], [{ ttl: '1s', nullTtl: '1h' }]] as [CacheEntryOptions][])(
    'that there is none is kept for no longer than %p',
    async (options) => {
      for (const [key, nothing] of [
        ['null', null],
        ['undefined', undefined],
      ] as const) {
        await read(plain, key, nothing, { ...options, jitter: 0 });
        expect(await plain.ttl(key)).toBeGreaterThan(800);
        expect(await plain.ttl(key)).toBeLessThanOrEqual(1_000);
      }
    },
  );

  it('that there is none is not kept with nullTtl 0', async () => {
    expect(await read(plain, 'none', null, { nullTtl: 0 })).toEqual({ value: null, loads: 1 });
    expect(await read(plain, 'none', 1, { nullTtl: 0 })).toEqual({ value: 1, loads: 1 });
  });

  it('lives for as long as a duration says', async () => {
    for (const [ttl, most] of [
      ['2s', 2_000],
      ['5m', 300_000],
      ['1.5h', 5_400_000],
      [750, 750],
    ] as const) {
      await read(plain, `for:${ttl}`, 1, { ttl, jitter: 0 });
      expect(await plain.ttl(`for:${ttl}`)).toBeLessThanOrEqual(most);
      expect(await plain.ttl(`for:${ttl}`)).toBeGreaterThan(most - 500);
    }
  });

  it('lives for a time that its jitter shortens, evenly, and never lengthens', async () => {
    const keys = Array.from({ length: 400 }, (_, index) => `jitter:${index}`);
    await Promise.all(keys.map((key) => read(plain, key, 1, { ttl: 1_000_000, jitter: 0.2 })));
    const lives = await Promise.all(keys.map(async (key) => Number(await plain.ttl(key))));
    expect(Math.min(...lives)).toBeGreaterThan(790_000);
    expect(Math.min(...lives)).toBeLessThan(815_000);
    expect(Math.max(...lives)).toBeGreaterThan(970_000);
    expect(Math.max(...lives)).toBeLessThanOrEqual(1_000_000);
  });

  it.each([
    ['ttl', (key: string) => plain.getOrSet(key, () => 1, { ttl: 1_000_000, jitter: 0.5 })],
    [
      'setTtl',
      (key: string) =>
        plain.getOrSet(key, ({ setTtl }) => setTtl(1_000_000), { nullTtl: '1d', ttl: '1d', jitter: 0.5 }),
    ],
    ['nullTtl', (key: string) => plain.getOrSet(key, () => null, { nullTtl: 1_000_000, ttl: '1d', jitter: 0.5 })],
    ['the ttl of set', (key: string) => plain.set(key, 'text', { ttl: 1_000_000, jitter: 0.5 })],
  ])('is never kept for longer than %s says', async (what, store) => {
    const keys = Array.from({ length: 50 }, (_, index) => `bound:${what}:${index}`);
    for (const key of keys) await store(key);
    const lives = await Promise.all(keys.map(async (key) => Number(await plain.ttl(key))));
    expect(Math.max(...lives)).toBeLessThanOrEqual(1_000_000);
    expect(Math.min(...lives)).toBeGreaterThan(490_000);
  });

  it('lives for as long as its loader says, and not at all when it says so', async () => {
    const options = { jitter: 0 };
    await plain.getOrSet('said', ({ setTtl }) => setTtl('2s'), options);
    await plain.getOrSet(
      'said:null',
      (context) => {
        context.setTtl('1h');
        return null;
      },
      { ...options, nullTtl: '3s' },
    );
    await plain.getOrSet('skipped', (context) => context.skip(), options);
    expect(await plain.ttl('skipped')).toBeNull();
    expect(await plain.ttl('said:null')).toBeLessThanOrEqual(3_000);
  });
});

describe('a loader', () => {
  it('runs in the asynchronous context of its own caller, although others ask at the same time', async () => {
    const tenant = new AsyncLocalStorage<string>();
    const tenants = Array.from({ length: 20 }, (_, index) => `tenant-${index}`);
    const seen = await Promise.all(
      tenants.map((name) => tenant.run(name, () => plain.getOrSet(`of:${name}`, () => tenant.getStore()))),
    );
    expect(seen).toEqual(tenants);
  });

  it('that waits for the caller before it runs in its own context, too', async () => {
    const tenant = new AsyncLocalStorage<string>();
    const gate = new Gate();
    const first = tenant.run('first', () =>
      plain.getOrSet('shared', () => gate.opened.then(() => 1), { consistency: 'strong', nullTtl: 0 }),
    );
    const second = tenant.run('second', () =>
      plain.getOrSet('shared', () => tenant.getStore(), { consistency: 'strong' }),
    );
    await redis.ping();
    await plain.invalidate('shared');
    gate.open();
    expect(await Promise.all([first, second])).toEqual([1, 'second']);
  });
});

describe('what is stored', () => {
  class Money {
    constructor(readonly cents: number) {}
  }
  const shapes = {
    date: new Date(5),
    map: new Map([['a', new Set([1])]]),
    bytes: Buffer.from([0, 255]),
    nested: { none: undefined, list: [null, { deep: 1n }], text: 'Grüße 😀 "quoted"\n' },
  };

  it('has the same shape at both levels, which is that of what was loaded', async () => {
    for (const [key, value] of Object.entries(shapes)) {
      expect(await read(plain, `shape:${key}`, value)).toEqual({ value, loads: 1 });
      for (const cache of [plain, fronted, fronted]) {
        expect(await read(cache, `shape:${key}`, 0)).toStrictEqual({ value, loads: 0 });
      }
    }
    expect(fronted.stats().firstLevelHits).toBeGreaterThanOrEqual(4);
  });

  it('does not change with what a caller does to its copy', async () => {
    await read(plain, 'copy', { list: [1] });
    for (let time = 0; time < 3; time++) {
      const copy = await fronted.getOrSet('copy', () => ({ list: [1] }));
      expect(copy).toEqual({ list: [1] });
      copy.list.push(2);
    }
  });

  it('becomes an instance of its class again, at both levels', async () => {
    const options = { revive: (stored: unknown) => new Money((stored as Money).cents) };
    for (const cache of [plain, plain, fronted, fronted]) {
      const money = await cache.getOrSet('money', () => new Money(7), options);
      expect(money).toBeInstanceOf(Money);
      expect(money.cents).toBe(7);
    }
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('of another time');
      },
    ],
    ['rejects', () => Promise.reject(new Error('of another time'))],
  ])('is loaded anew where its revive %s', async (how, revive) => {
    const key = `unrevivable:${how}`;
    await read(plain, key, 1);
    for (const cache of [plain, fronted, fronted]) {
      expect(await read(cache, key, 2, { revive })).toEqual({ value: 2, loads: 1 });
      expect(await read(cache, key, 0)).toEqual({ value: 2, loads: 0 });
    }
  });

  it('is what a revive that answers a promise resolves to', async () => {
    await read(plain, 'revived later', 1);
    const revive = async (stored: unknown) => (stored as number) + 1;
    for (const cache of [plain, fronted, fronted])
      expect((await read(cache, 'revived later', 0, { revive })).value).toBe(2);
  });

  it.each([
    ['behind whom the caller waits', { softTimeout: '1m' }],
    ['of a refresh', { softTimeout: 0 }],
  ] as const)('is revived for the loader %s', async (what, soft) => {
    const key = `revived stale ${what}`;
    await read(plain, key, 1, { ttl: 1, staleTtl: '1m' });
    await eventually(async () => !(await plain.has(key)));
    const options = { staleTtl: '1m', revive: (stored: unknown) => ({ revived: stored }), ...soft } as const;
    const loaded = new Promise((resolve) => {
      void plain.getOrSet(key, async ({ stale }) => (resolve(stale), stale), options);
    });
    expect(await loaded).toEqual({ revived: 1 });
  });

  it('is not the fallback for a loader that fails where it cannot be revived', async () => {
    await read(plain, 'unrevivable stale', 1, { ttl: 1, staleTtl: '1m' });
    await eventually(async () => !(await plain.has('unrevivable stale')));
    const options = { staleTtl: '1m', softTimeout: '1s', revive: () => BigInt('x') } as const;
    const failing = plain.getOrSet('unrevivable stale', () => Promise.reject(new Error('no database')), options);
    await expect(failing).rejects.toThrow('no database');
  });

  it.each([
    ['no bytes', Buffer.of()],
    ['text of others', Buffer.from('hello')],
    ['a date of others', Buffer.from('2024-01-01')],
    ['a number with something behind it', Buffer.from('12abc')],
    ['a sign', Buffer.from('-')],
    ['only a version', Buffer.of(1)],
    ['a head without an end', Buffer.from('\x01Pzzz{"g":{"a":1}')],
    ['a head that is no JSON', Buffer.from('\x01Pzzz{"g":\n1')],
    ['a payload that ends too early', Buffer.from('\x01@zzzzzzzzz\n{"a":')],
    ['what is said to be compressed and is not', Buffer.from('\x01Dzzzzzzzzz\n{"a":1}')],
    ['a future version', Buffer.from('\x02@zzzzzzzzz\n1')],
    ['random bytes', Buffer.from('c1ffee0011223344', 'hex')],
  ])('and cannot be read (%s) counts as absent, and is loaded anew', async (what, bytes) => {
    const key = `corrupt ${what}`;
    await redis.set(`cache:${key}`, bytes);
    expect(await plain.get(key)).toBeUndefined();
    expect(await plain.has(key)).toBe(false);
    expect(await read(fronted, key, 'anew')).toEqual({ value: 'anew', loads: 1 });
    expect(await read(plain, key, 'again')).toEqual({ value: 'anew', loads: 0 });
  });

  it('and cannot be read is reported in one line', () => {
    const told = instances.flatMap(({ logger }) => logger.matching(/cannot be read and counts as absent/));
    expect(told.length).toBeGreaterThanOrEqual(1);
    expect(told.length).toBeLessThanOrEqual(2);
  });

  it('cuts short at every byte without a crash, and never as another value', async () => {
    await read(plain, 'cut', { text: 'whole', tags: 1 }, { tags: ['a'], staleTtl: '1m', refreshAhead: true });
    const whole = (await redis.getBuffer('cache:cut')) as Buffer;
    for (let length = 0; length < whole.length; length++) {
      await redis.set('cache:cut', whole.subarray(0, length));
      expect(await plain.get('cut')).toBeUndefined();
    }
  });

  it('is compressed from a threshold on, and inflated only by those who compress', async () => {
    const [packing] = await openCaches(1, server.port, { compression: { threshold: 1_000 } });
    const long = { text: 'la '.repeat(1_000) };
    await read(packing!.cache, 'long', long);
    await read(packing!.cache, 'short', 'la');
    expect(await redis.strlen('cache:long')).toBeLessThan(200);
    for (const cache of [packing!.cache, plain, fronted, fronted]) {
      expect(await read(cache, 'short', 0)).toEqual({ value: 'la', loads: 0 });
    }
    expect(await read(packing!.cache, 'long', 0)).toEqual({ value: long, loads: 0 });
    expect(await read(plain, 'long', long)).toEqual({ value: long, loads: 1 });
    expect(await read(packing!.cache, 'long', 0)).toEqual({ value: long, loads: 0 });
    await packing!.close();
  });

  it('is written by a serializer of the user, whose failures store nothing', async () => {
    const serializer = {
      serialize: (value: unknown) => {
        if (value === 'unwritable') throw new Error('cannot');
        return Buffer.from(`mine:${String(value)}`);
      },
      deserialize: (data: Buffer) => data.toString().replace(/^mine:/, ''),
    };
    const [own] = await openCaches(1, server.port, { serializer, l1: {} });
    for (const loads of [1, 0, 0]) expect(await read(own!.cache, 'own', 'value')).toEqual({ value: 'value', loads });
    for (let time = 0; time < 2; time++) {
      expect(await read(own!.cache, 'un', 'unwritable')).toEqual({ value: 'unwritable', loads: 1 });
    }
    expect(await redis.keys('cache:*')).toEqual(['cache:own']);
    expect(own!.logger.matching(/"un" cannot be stored/)).toHaveLength(1);
    await own!.close();
  });
});

it('that there is nothing is not served beyond its time, where stale values are', async () => {
  const options: CacheEntryOptions = { nullTtl: 40, staleTtl: '1d', jitter: 0 };
  await plain.getOrSet('row', () => null, options);
  expect(await plain.ttl('row')).toBeLessThanOrEqual(40);
  await eventually(async () => (await redis.exists('cache:row')) === 0);
  expect(await plain.getOrSet('row', () => 'found', options)).toBe('found');
  expect(await plain.ttl('row')).toBeGreaterThan(60_000);
});

describe('an error thrown inside a read', () => {
  class BrokenFilter extends BloomFilter {
    override mayHave(): never {
      throw new Error('broken filter');
    }
  }

  it.each([
    ['when the store answers', false, {}],
    ['before the store is asked', false, { forceFresh: true }],
    ['after a change of the key', true, { forceFresh: true }],
    ['when the store answers after a change of the key', true, {}],
  ])('rejects every caller of the read, and no later one: %s', async (_, whileChanging, options) => {
    using scripted = scriptedCache();
    const { cache, engine, store } = scripted;
    const gate = new Gate();
    const invalidate = store.invalidate.bind(store);
    store.invalidate = (request) =>
      new Promise((resolve, reject) => {
        void gate.opened.then(() => invalidate(request).then(resolve, reject));
      });
    const change = whileChanging ? cache.invalidate('k') : Promise.resolve();
    const bloom = { filter: new BrokenFilter('broken', { capacity: 10 }, engine.calls), id: '1' };
    const reads = [1, 2].map(() => cache.getOrSet('k', () => 'never', { ...options, bloom }));
    const settled = Promise.allSettled(reads);
    gate.open();
    await change;
    for (const each of await settled) {
      expect(each).toMatchObject({ status: 'rejected', reason: { message: 'broken filter' } });
    }
    expect(await cache.getOrSet('k', () => 'later', options)).toBe('later');
  });
});

describe('options that cannot be', () => {
  it.each([
    [{ ttl: 0 }, /"ttl" is 0; give milliseconds/],
    [{ ttl: '5 minutes' }, /"ttl" is "5 minutes"; give .*'5m'/],
    [{ nullTtl: Infinity }, /"nullTtl" is Infinity/],
    [{ jitter: 0.6 }, /"jitter" is 0.6; give a part of ttl from 0 to 0.5/],
    [{ nullTtl: -1 }, /"nullTtl" is -1/],
    [{ loaderTimeout: '30d' }, /"loaderTimeout" is "30d"; give milliseconds \(from 1 to 2147483647\)/],
    [{ refreshAhead: 2 }, /"refreshAhead" is 2/],
    [{ lock: { lease: 1 } }, /"lock.lease" is 1/],
    [{ lock: { onTimeout: 'wait' } }, /"lock.onTimeout" is "wait"/],
    [{ consistency: 'weak' }, /"consistency" is "weak"/],
    [{ tags: 'one' }, /"tags" is "one"; give a list/],
    [{ tags: [''] }, /"tags" is ""/],
    [{ onRedisError: 'ignore' }, /"onRedisError" is "ignore"/],
    [{ tll: 5 }, /Unknown cache option "tll"; give any of ttl/],
    [null, /"options" is null/],
  ])('%p rejects, names the option, and loads nothing', async (options, message) => {
    const reading = read(plain, 'refused', 1, options as CacheEntryOptions);
    await expect(reading).rejects.toMatchObject({ code: 'CACHE_CONFIG', message: expect.stringMatching(message) });
    expect(await redis.keys('cache:*')).toEqual([]);
  });

  it.each([[''], [undefined], [null], [5], [{}]])('a key that is %p rejects', async (key) => {
    await expect(plain.getOrSet(key as string, () => 1)).rejects.toMatchObject({ code: 'CACHE_KEY' });
    await expect(plain.get(key as string)).rejects.toMatchObject({ code: 'CACHE_KEY' });
    await expect(plain.invalidate([key as string])).rejects.toMatchObject({ code: 'CACHE_KEY' });
  });
});
