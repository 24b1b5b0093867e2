import { CacheConfigError, type CacheService, memory } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';

/** As a caller without types calls them. */
type Untyped = Record<keyof CacheService, (...args: unknown[]) => unknown>;

const { cache, locks, semaphores, close } = testServices({ backend: memory(), cache: {} });
afterAll(close);

const write = async () => 'written';
const calls: [method: keyof CacheService, args: unknown[], refusal: RegExp][] = [
  ['getOrSet', ['k'], /Option "loader" is undefined; give a function/],
  ['getOrSetMany', [['k']], /Option "loader" is undefined; give a function/],
  ['getOrSetMany', ['k', write], /Option "keys" is "k"; give a list of keys/],
  ['mget', [], /Option "keys" is undefined; give a list of keys/],
  ['mset', [], /Option "values" is undefined; give an object of values, or a Map/],
  ['mutate', ['k'], /Option "write" is undefined; give a function/],
  ['flush', ['k'], /Option "write" is undefined; give a function/],
  ['doubleDelete', ['k'], /Option "write" is undefined; give a function/],
  ['doubleDelete', ['k', write], /Option "options" is undefined; give an object with the delay/],
  ['doubleDeleteByPrefix', ['k', write], /Option "options" is undefined; give an object with the delay/],
  ['bloomFilter', ['x'], /Option "options" is undefined; give an object with its capacity/],
];

it.each(calls)('%s refuses %j by naming what is missing', async (method, args, refusal) => {
  const call = async () => (cache as unknown as Untyped)[method](...args);
  await expect(call()).rejects.toThrow(refusal);
  await expect(call()).rejects.toBeInstanceOf(CacheConfigError);
});

it.each<[method: keyof CacheService, args: unknown[], option: string]>([
  ['doubleDelete', ['k', write, { delay: 0 }], 'delay'],
  ['doubleDeleteByPrefix', ['k', write, { delay: 0 }], 'delay'],
  ['doubleDeleteByPrefix', ['k', write, { delay: 1, batch: 0 }], 'batch'],
  ['flush', ['k', write, { batch: 0 }], 'batch'],
  ['deleteByPrefix', ['k', { batch: 0 }], 'batch'],
  ['deleteByPattern', ['k', { batch: 0 }], 'batch'],
  ['expire', ['k', { soft: false }], 'soft'],
  ['expire', [['k'], { soft: 1 }], 'soft'],
])('%s of %j refuses a wrong option, and names itself and the key', async (method, args, option) => {
  const call = async () => (cache as unknown as Untyped)[method](...args);
  await expect(call()).rejects.toMatchObject({
    code: 'CACHE_CONFIG',
    keys: ['k'],
    message: expect.stringMatching(new RegExp(`^"${method}" of "k": Option "${option}" is`)),
  });
});

describe('an option that the call does not take', () => {
  const others = { read: 'ttl', deletion: 'tags', store: 'barrier' };
  const refusing: [method: keyof CacheService, args: unknown[], option: string, takes: string][] = [
    ['get', ['k'], others.read, 'onRedisError'],
    ['mget', [['k']], others.read, 'onRedisError'],
    ['getDel', ['k'], others.read, 'onRedisError'],
    ['deleteByTag', ['k'], others.read, 'onRedisError'],
    ['expireByTag', ['k'], others.read, 'onRedisError'],
    ['deleteByPrefix', ['k'], others.read, 'onRedisError'],
    ['deleteByPattern', ['k*'], others.read, 'onRedisError'],
    ['flush', ['k', write], others.read, 'onRedisError'],
    ['invalidate', ['k'], others.deletion, 'barrier, onRedisError'],
    ['del', ['k'], others.deletion, 'barrier, onRedisError'],
    ['mutate', ['k', write], others.deletion, 'barrier, onRedisError'],
    ['set', ['k', 1], others.store, 'ttl, jitter, nullTtl, staleTtl, tags, onRedisError'],
    ['setIfAbsent', ['k', 1], others.store, 'ttl, jitter, nullTtl, staleTtl, tags, onRedisError'],
    ['mset', [{ k: 1 }], others.store, 'ttl, jitter, nullTtl, staleTtl, tags, onRedisError'],
  ];

  it.each(refusing)('%s refuses it, and names the method and the remedy', async (method, args, option, takes) => {
    const options = { ttl: '5m', tags: ['t'], barrier: '1s' };
    const given = { [option]: options[option as keyof typeof options] };
    const call = async () => (cache as unknown as Untyped)[method](...args, given);
    const message = new RegExp(`^"${method}".*: Unknown option of this call "${option}"; give any of ${takes}$`);
    await expect(call()).rejects.toMatchObject({ code: 'CACHE_CONFIG', message: expect.stringMatching(message) });
  });

  it.each([
    ['doubleDelete', { delay: '1s' }],
    ['doubleDeleteByPrefix', { delay: '1s' }],
    ['expire', { soft: true }],
  ] as [keyof CacheService, object][])('%s refuses it beside its own', async (method, own) => {
    const args = method === 'expire' ? ['k', { ...own, tags: ['t'] }] : ['k', write, { ...own, tags: ['t'] }];
    const call = async () => (cache as unknown as Untyped)[method](...args);
    await expect(call()).rejects.toThrow(new RegExp(`^"${method}".*: Unknown option of this call "tags"; give any of`));
  });

  it.each([
    ['incr', (options: object) => cache.incr('n', options as never)],
    ['decr', (options: object) => cache.decr('n', 2, options as never)],
    ['sets.add', (options: object) => cache.sets.add('s', 'm', options as never)],
  ])('%s refuses it beside its ttl', async (method, call) => {
    await expect(call({ ttl: '1h', jitter: 0 })).rejects.toThrow(
      new RegExp(`^"${method}" of ".": Unknown option of ${method}\\(\\) "jitter"; give any of ttl$`),
    );
  });

  it('a Bloom filter refuses it', async () => {
    const open = (more: object) => cache.bloomFilter('ids', { capacity: 10, ...more });
    expect(() => open({ errorrate: 0.1 })).toThrow(/"errorrate"; give any of capacity, errorRate, ttl/);
    expect(() => open({ errorRate: Symbol('x') })).toThrow(/Option "errorRate" is Symbol\(x\); give a number/);
    const rebuilding = open({}).rebuild(() => [], { ttl: '1h' } as object);
    await expect(rebuilding).rejects.toThrow(/Unknown option of rebuild\(\) "ttl"; give any of settle/);
  });

  it('is refused again where a call before it took it', async () => {
    await cache.set('k', 1, { ttl: '5m' });
    const reading = cache.get('k', { ttl: '5m' } as object);
    await expect(reading).rejects.toThrow(/Unknown option of this call "ttl"/);
    const storing = cache.set('k', 1, { barrier: '1s' } as object);
    await expect(storing).rejects.toThrow(/Unknown option of this call "barrier"/);
  });
});

it.each([null, 5, true, 'k', []])('deletions of many refuse the options %p', async (options) => {
  for (const args of [
    ['deleteByPrefix', 'k'],
    ['deleteByPattern', 'k*'],
    ['flush', 'k', write],
  ] as const) {
    const [method, ...rest] = args;
    const call = async () => (cache as unknown as Untyped)[method](...rest, options);
    await expect(call()).rejects.toThrow(/Option "options" is .*; give an object of options/);
  }
});

it.each([
  ['prefix', [5, undefined]],
  ['batch', ['k', { batch: 0 }]],
  ['onRedisError', ['k', { onRedisError: 'ignore' }]],
  ['ttl', ['k', { ttl: '5m' }]],
])(
  'flush refuses a bad "%s" before it writes: the write would go without its deletion',
  async (option, [prefix, given]) => {
    let writes = 0;
    const count = async () => (writes += 1);
    const flushing = (cache as unknown as Untyped).flush(prefix, count, given);
    await expect(flushing).rejects.toMatchObject({
      code: 'CACHE_CONFIG',
      message: expect.stringContaining(`"${option}"`),
    });
    expect(writes).toBe(0);
  },
);

it('refuses what has no text of its own, with the name of the option', async () => {
  const bare = Object.create(null) as string;
  await expect(cache.sets.has('s', bare)).rejects.toThrow(/^Option "members" is \[Object: null prototype\] \{\}; give/);
});

describe.each([
  ['without a prototype', Object.create(null)],
  [
    'whose text throws',
    {
      toString() {
        throw new Error('no text');
      },
    },
  ],
])('an object %s is no name', (_, name) => {
  const keyed = name as string;
  it.each([
    ['a key of the cache', 'CACHE_KEY', () => cache.get(keyed)],
    ['keys of the cache', 'CACHE_KEY', () => cache.invalidate(keyed)],
    ['a tag', 'CACHE_KEY', () => cache.deleteByTag([keyed])],
    ['a lock', 'LOCK_KEY', () => locks.acquire(keyed)],
    ['one of several locks', 'LOCK_KEY', () => locks.acquire(['a', keyed])],
    ['a semaphore', 'PRIMITIVE_KEY', () => semaphores.acquire(keyed, { permits: 1 })],
  ])('of %s', async (_what, code, call) => {
    await expect((async () => call())()).rejects.toMatchObject({ code });
  });
});

describe.each([
  new Date(0),
  Promise.resolve({}),
  new Set(['ttl']),
  new Map([['ttl', 1]]),
  new Error('5m'),
  /5m/,
  new AbortController().signal,
  new Uint8Array(0),
])('%p holds no options', (given) => {
  const options = given as object;
  it.each([
    ['set', () => cache.set('k', 1, options)],
    ['getOrSet', () => cache.getOrSet('k', write, options)],
    ['invalidate', () => cache.invalidate('k', options)],
    ['deleteByPrefix', () => cache.deleteByPrefix('k', options)],
    ['flush', () => cache.flush('k', write, options)],
    ['getOrSet, of its lock', () => cache.getOrSet('k', write, { lock: options })],
    ['withLock', () => locks.withLock('k', options, write)],
  ])('of %s', async (_, call) => {
    await expect((async () => call())()).rejects.toMatchObject({ code: expect.stringMatching(/_CONFIG$/) });
  });
});

it('mset takes no promise of values, of which it would store none', async () => {
  const values = Promise.resolve({ a: 1 }) as never;
  await expect(cache.mset(values)).rejects.toThrow(/Option "values" is \[object Promise\]; give/);
});

describe('a Bloom filter', () => {
  const ids = cache.bloomFilter('ids', { capacity: 10 });

  it.each([7, undefined, null, {}, Symbol('7')])('refuses the id %p', async (given) => {
    const id = given as string;
    for (const call of [
      () => ids.add(id),
      () => ids.mayHave(id),
      () => ids.addAll([id]),
      () => ids.mayHaveMany([id]),
    ]) {
      await expect(call()).rejects.toMatchObject({
        code: 'CACHE_CONFIG',
        message: expect.stringMatching('give a text'),
      });
    }
  });

  it('refuses one text in place of a list: it would take each character', async () => {
    await expect(ids.addAll('77')).rejects.toThrow(/Option "ids" is "77"; give a list/);
    await expect(ids.mayHaveMany('77')).rejects.toThrow(/Option "ids" is "77"; give a list/);
  });

  it('of one id is refused for many keys', async () => {
    const bloom = { filter: ids, id: '77' };
    const loader = async (keys: readonly string[]) => keys.map(() => 'loaded');
    const reading = cache.getOrSetMany(['k1', 'k2'], loader, { bloom });
    await expect(reading).rejects.toMatchObject({
      code: 'CACHE_CONFIG',
      message: expect.stringMatching(/"getOrSetMany" of .*Option "bloom" is .*mayHaveMany/),
    });
    expect(await cache.getOrSetMany(['k1', 'k2'], loader)).toEqual(['loaded', 'loaded']);
  });
});

it.each([Symbol('7'), {}, Object.create(null) as object, { toString: 5 }])(
  'what refuses the options of a call shows the key, also where that is %p',
  async (key) => {
    const untyped = cache as unknown as Untyped;
    await expect(untyped.incr(key, 1, { ttl: -1 })).rejects.toThrow(/Option "ttl" is -1/);
    await expect(cache.sets.add(key as never, ['a'], { ttl: -1 })).rejects.toThrow(/Option "ttl" is -1/);
  },
);
