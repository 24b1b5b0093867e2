import { jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { Cached, CachePut, type CacheService, type ReadOptions } from 'nest-redis-lock';
import { cacheApp } from '../../../support/cache-app.js';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;

beforeAll(async () => (server = await startRedisServer()));
afterAll(() => server.stop());

const failing = () => Promise.reject(new Error('no database'));

/** Stores a value that is stale at once, and kept. */
async function putStale(cache: CacheService, key: string): Promise<void> {
  await cache.getOrSet(key, () => 'stale', { ttl: 1, staleTtl: '1m' });
  // In Redis, and in the first level, whose clock is another one.
  await eventually(async () => !(await cache.has(key)) && (await cache.get(key)) === undefined);
}

describe.each([
  ['on Redis', () => openCache({ redis: server.url, prefix: 'plain' })],
  ['on Redis, with a first level', () => openCache({ redis: server.url, prefix: 'fronted', cache: { l1: {} } })],
  ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
])('%s', (_, open) => {
  it.each([
    ['text', 'a name'],
    ['a sum above 64 bits', Number.MAX_SAFE_INTEGER],
  ])('incr rejects with CacheConfigError for %s', async (_what, value) => {
    await using instance = await open();
    const { cache } = instance;
    await cache.set('n', value);
    const add = () => cache.incr('n', Number.MAX_SAFE_INTEGER, { ttl: '1h' });
    if (typeof value === 'number') await Promise.all(Array.from({ length: 1_023 }, add));
    const counting = add();
    await expect(counting).rejects.toMatchObject({ code: 'CACHE_CONFIG', keys: [expect.stringMatching(/n$/)] });
  });

  describe('after a load that failed', () => {
    it.each([[{ softTimeout: '1s' }], [{}]] as ReadOptions[][])(
      'the stale value is the answer without a load, for a while: %p',
      async (options) => {
        await using instance = await open();
        const { cache } = instance;
        await putStale(cache, 'rests');
        const loader = jest.fn(failing);
        const read = () => cache.getOrSet('rests', loader, { staleTtl: '1m', restAfterError: '1h', ...options });
        for (let time = 0; time < 20; time++) {
          expect(await read()).toBe('stale');
          await eventually(() => cache.stats().failedLoads > 0);
        }
        expect(loader).toHaveBeenCalledTimes(1);
        await cache.invalidate('rests');
        await expect(read()).rejects.toThrow('no database');
      },
    );

    it('the next read loads with restAfterError 0, and so it does when the time is over', async () => {
      await using instance = await open();
      const { cache } = instance;
      await putStale(cache, 'restless');
      const read = (restAfterError: number) =>
        cache.getOrSet('restless', failing, { staleTtl: '1m', softTimeout: '1s', restAfterError });
      for (let time = 0; time < 3; time++) await read(0);
      expect(cache.stats().failedLoads).toBe(3);
      await read(30);
      await eventually(async () => (await read(30)) === 'stale' && cache.stats().failedLoads >= 6);
    });

    it.each([[{ softTimeout: '1s' }], [{}]] as ReadOptions[][])(
      'a soft expiry of a tag ends the rest: %p',
      async (options) => {
        await using instance = await open();
        const { cache } = instance;
        const key = `rests ${JSON.stringify(options)}`;
        const settings = { staleTtl: '1m', restAfterError: '1h', tags: ['shop'], ...options } as const;
        await cache.getOrSet(key, () => 'stale', { ...settings, ttl: 1 });
        await eventually(async () => !(await cache.has(key)) && (await cache.get(key)) === undefined);
        await cache.getOrSet(key, failing, settings);
        await eventually(() => cache.stats().failedLoads === 1);
        const loader = jest.fn(() => 'new');
        await eventually(async () => cache.getOrSet(key, loader, settings).then(() => true));
        expect(loader).not.toHaveBeenCalled();
        await cache.expireByTag('shop');
        await eventually(async () => (await cache.getOrSet(key, loader, settings)) === 'new');
      },
    );

    it('each read loads in the background where the stale value is no answer to an error', async () => {
      await using instance = await open();
      const { cache } = instance;
      await putStale(cache, 'errs in vain');
      const options = { staleTtl: '1m', staleIfError: false, restAfterError: '1h' } as const;
      for (let time = 1; time <= 3; time++) {
        expect(await cache.getOrSet('errs in vain', failing, options)).toBe('stale');
        await eventually(() => cache.stats().failedLoads === time);
        await sleep(5);
      }
    });

    it('each read loads where the stale value is no answer to an error', async () => {
      await using instance = await open();
      const { cache } = instance;
      await putStale(cache, 'errs');
      const options = { staleTtl: '1m', softTimeout: '20s', staleIfError: false } as const;
      for (let time = 0; time < 3; time++) await expect(cache.getOrSet('errs', failing, options)).rejects.toThrow();
      expect(cache.stats().failedLoads).toBe(3);
    });
  });

  describe('a signal', () => {
    it('ends the wait of its own call, and not the load of others', async () => {
      await using instance = await open();
      const { cache } = instance;
      const gate = new Gate();
      const controller = new AbortController();
      const load = async () => {
        await gate.opened;
        return 'loaded';
      };
      const first = cache.getOrSet('waits', load, { signal: controller.signal });
      const many = cache.getOrSetMany(['waits'], async () => ['other'], { signal: controller.signal });
      const other = cache.getOrSet('waits', load);
      const reason = new Error('the client has gone');
      controller.abort(reason);
      await expect(first).rejects.toBe(reason);
      await expect(many).rejects.toBe(reason);
      gate.open();
      expect(await other).toBe('loaded');
      expect(await cache.get('waits')).toBe('loaded');
    });

    it('that is aborted loads nothing, and one that is not changes nothing', async () => {
      await using instance = await open();
      const { cache } = instance;
      const loader = jest.fn(() => 1);
      const reading = cache.getOrSet('gone', loader, { signal: AbortSignal.abort('gone') });
      await expect(reading).rejects.toBe('gone');
      expect(loader).not.toHaveBeenCalled();
      const { signal } = new AbortController();
      const warnings: Error[] = [];
      const onWarning = (warning: Error) => warnings.push(warning);
      process.on('warning', onWarning);
      await Promise.all(Array.from({ length: 50 }, (_each, index) => cache.getOrSet(`k${index}`, () => 1, { signal })));
      await new Promise((resolve) => setImmediate(resolve));
      process.off('warning', onWarning);
      expect(warnings).toEqual([]);
      await expect(cache.getOrSet('e', failing, { signal })).rejects.toThrow('no database');
    });
  });

  describe('forceFresh', () => {
    it('loads and stores whatever is stored, once for those who ask at the same time', async () => {
      await using instance = await open();
      const { cache } = instance;
      for (const value of ['first', 'first']) expect(await cache.getOrSet('forced', () => 'first')).toBe(value);
      const gate = new Gate();
      const loader = jest.fn(async () => {
        await gate.opened;
        return 'second';
      });
      const forced = [1, 2, 3].map(() => cache.getOrSet('forced', loader, { forceFresh: true }));
      expect(await cache.getOrSet('forced', () => 'other')).toBe('first');
      gate.open();
      expect(await Promise.all(forced)).toEqual(['second', 'second', 'second']);
      expect(loader).toHaveBeenCalledTimes(1);
      for (let time = 0; time < 3; time++) expect(await cache.getOrSet('forced', () => 'other')).toBe('second');
    });

    it('stores nothing over an invalidation that came after it began', async () => {
      await using instance = await open();
      const { cache } = instance;
      await cache.getOrSet('fenced', () => 'old');
      const gate = new Gate();
      const begun = new Gate();
      const forced = cache.getOrSet(
        'fenced',
        async () => {
          begun.open();
          await gate.opened;
          return 'read before';
        },
        { forceFresh: true },
      );
      await begun.opened;
      await cache.invalidate('fenced');
      gate.open();
      expect(await forced).toBe('read before');
      expect(await cache.get('fenced')).toBeUndefined();
    });

    it('leaves what is stored where its loader fails, and loads many in one call', async () => {
      await using instance = await open();
      const { cache } = instance;
      await cache.getOrSetMany(['a', 'b'], async (keys) => keys.map(() => 'old'));
      const options = { forceFresh: true };
      await expect(cache.getOrSet('a', failing, options)).rejects.toThrow('no database');
      expect(await cache.mget(['a', 'b'])).toEqual(['old', 'old']);
      const loader = jest.fn(async (keys: readonly string[]) => keys.map(() => 'new'));
      expect(await cache.getOrSetMany(['a', 'b'], loader, options)).toEqual(['new', 'new']);
      expect(loader.mock.calls.map(([keys]) => keys)).toEqual([['a', 'b']]);
      expect(await cache.mget(['a', 'b'])).toEqual(['new', 'new']);
    });
  });

  it('set keeps a value for its staleTtl, and that of the defaults, also a number', async () => {
    await using instance = await open();
    const { cache } = instance;
    for (const value of ['text', 7, { a: 1 }]) {
      const options = { ttl: 20, staleTtl: '1m', jitter: 0 } as const;
      await cache.set('kept', value, options);
      await eventually(async () => !(await cache.has('kept')));
      expect(await cache.get('kept')).toBeUndefined();
      const reading = cache.getOrSet('kept', failing, { staleTtl: '1m', softTimeout: '1s', restAfterError: 0 });
      expect(await reading).toEqual(value);
    }
    await cache.set('none', null, { nullTtl: 20, staleTtl: '1m' });
    await eventually(async () => (await cache.ttl('none')) === null);
  });

  it('tags are those of a namespace', async () => {
    await using instance = await open();
    const [berlin, paris] = ['berlin', 'paris'].map((name) => instance.cache.namespace(name));
    for (const each of [berlin!, paris!, instance.cache]) {
      await each.getOrSet('named', () => 'kept', { tags: ['all'] });
      await each.getOrSet('loaded', ({ setTags }) => (setTags(['all']), 'kept'));
      await each.set('set', 'kept', { tags: ['all'] });
    }
    const all = ['named', 'loaded', 'set'];
    await berlin!.deleteByTag('all');
    expect(await berlin!.mget(all)).toEqual([undefined, undefined, undefined]);
    for (const each of [paris!, instance.cache]) expect(await each.mget(all)).toEqual(['kept', 'kept', 'kept']);
    expect(await paris!.getOrSet('named', () => 'other', { tags: ['all'] })).toBe('kept');
    await instance.cache.deleteByTag('all');
    expect(await paris!.mget(all)).toEqual(['kept', 'kept', 'kept']);
    expect(await instance.cache.get('set')).toBeUndefined();
  });

  it('numbers and sets have the end that is given, or none, and are refused without a word on it', async () => {
    await using instance = await open();
    const { cache } = instance;
    const forgotten = { ttl: undefined } as unknown as { ttl: number };
    await expect(cache.incr('visits', forgotten)).rejects.toThrow(/"ttl" is undefined; give how long/);
    await expect(cache.sets.add('members', 'ann', forgotten)).rejects.toMatchObject({ code: 'CACHE_CONFIG' });
    await expect(cache.sets.add('members', 'ann', undefined as never)).rejects.toMatchObject({ code: 'CACHE_CONFIG' });
    expect(await cache.incr('visits', { ttl: Infinity })).toBe(1);
    expect(await cache.incr('visits', 4, { ttl: '1s' })).toBe(5);
    expect(await cache.decr('visits', { ttl: '1s' })).toBe(4);
    expect(await cache.ttl('visits')).toBe(Infinity);
    expect(await cache.incr('today', 1, { ttl: '1h' })).toBe(1);
    expect(await cache.ttl('today')).toBeLessThanOrEqual(3_600_000);
    expect(await cache.pipeline().incr('visits', { ttl: Infinity }).decr('visits', 2, { ttl: 1 }).exec()).toEqual([
      5, 3,
    ]);
    await cache.sets.add('ends', 'ann', { ttl: 2_000 });
    await cache.sets.add('stays', 'ann', { ttl: 2_000 });
    await cache.sets.add('stays', 'bob', { ttl: Infinity });
    await eventually(async () => (await cache.sets.members('ends')).length === 0);
    expect([...(await cache.sets.members('stays'))].toSorted()).toEqual(['ann', 'bob']);
  });
});

describe('with a first level and whileAway', () => {
  it.each([['open'], ['throw']] as const)('a fresh value is served while Redis is away: %s', async (onRedisError) => {
    const own = await startRedisServer();
    const redis = { host: '127.0.0.1', port: own.port, retryStrategy: () => 10 };
    await using instance = await openCache({ redis, cache: { l1: { ttl: 20, whileAway: '1h' } } });
    const { cache } = instance;
    const options = { onRedisError, tags: ['tagged'] } as const;
    await cache.getOrSet('fresh', () => 'kept', options);
    await cache.getOrSet('plain', () => 'kept', { onRedisError });
    await cache.getOrSet('ends', () => 'kept', { ttl: '1s', jitter: 0, onRedisError });
    await own.stop();
    await eventually(() => cache.stats().firstLevelSize === 3);
    for (let time = 0; time < 3; time++) {
      expect(await cache.getOrSet('fresh', () => 'loaded', options)).toBe('kept');
      expect(await cache.getOrSet('plain', () => 'loaded', { onRedisError })).toBe('kept');
      expect(await cache.get('plain', { onRedisError })).toBe('kept');
    }
    const strong = cache.getOrSet('plain', () => 'loaded', { consistency: 'strong' });
    expect(await strong).toBe('loaded');
    await eventually(async () => (await cache.getOrSet('ends', () => 'loaded')) === 'loaded');
    await cache.invalidate('plain');
    expect(await cache.getOrSet('plain', () => 'loaded')).toBe('loaded');
    await cache.deleteByTag('tagged');
    expect(await cache.getOrSet('fresh', () => 'loaded', { tags: ['tagged'] })).toBe('loaded');
  });

  it('nothing is served once that time is over', async () => {
    const own = await startRedisServer();
    const redis = { host: '127.0.0.1', port: own.port, retryStrategy: () => 10 };
    await using instance = await openCache({ redis, cache: { l1: { whileAway: 50 } } });
    await instance.cache.getOrSet('k', () => 'kept');
    await own.stop();
    await eventually(async () => (await instance.cache.getOrSet('k', () => 'loaded')) === 'loaded');
  });
});

describe('a cache that is not enabled', () => {
  const open = () => openCache({ redis: 'redis://127.0.0.1:1', cache: { enabled: false, l1: {} } });

  it('runs loaders, and keeps nothing', async () => {
    await using instance = await open();
    const { cache } = instance;
    for (const value of [1, 2]) expect(await cache.getOrSet('k', () => value, { tags: ['t'] })).toBe(value);
    expect(await cache.getOrSetMany(['a', 'b'], async (keys) => keys)).toEqual(['a', 'b']);
    await cache.set('k', 1);
    expect(await cache.get('k')).toBeUndefined();
    expect([await cache.has('k'), await cache.ttl('k'), await cache.expire('k', 1)]).toEqual([false, null, false]);
    await cache.invalidate('k', { onRedisError: 'throw' });
    await cache.deleteByTag('t', { onRedisError: 'throw' });
    expect(await cache.deleteByPrefix('')).toBe(0);
    expect(await cache.mutate('k', async () => 'written', { onRedisError: 'throw' })).toBe('written');
    await expect(cache.getOrSet('k', failing)).rejects.toThrow('no database');
    expect(cache.stats()).toMatchObject({ redisErrors: 0, unconfirmedInvalidations: 0, breakerOpened: 0 });
  });

  it('says of numbers and sets why there are none', async () => {
    await using instance = await open();
    for (const use of [
      () => instance.cache.incr('n', { ttl: '1h' }),
      () => instance.cache.sets.add('s', 'a', { ttl: '1h' }),
      () => instance.cache.bloomFilter('b', { capacity: 10 }).add('x'),
    ]) {
      await expect(use()).rejects.toThrow(/"cache.enabled" is false/);
    }
  });
});

describe('a cache in memory alone', () => {
  it('keeps no more values than it may, those used last', async () => {
    await using instance = await openCache({ redis: 'redis://127.0.0.1:1', cache: { memory: { max: 3 } } });
    const { cache } = instance;
    for (const key of ['a', 'b', 'c']) await cache.getOrSet(key, () => key);
    await cache.get('a');
    await cache.getOrSet('d', () => 'd');
    expect(await cache.mget(['a', 'b', 'c', 'd'])).toEqual(['a', undefined, 'c', 'd']);
    expect(await cache.deleteByPrefix('')).toBe(3);
  });

  it('keeps no more bytes than it may', async () => {
    await using instance = await openCache({ redis: 'redis://127.0.0.1:1', cache: { memory: { maxBytes: 10_000 } } });
    const { cache } = instance;
    for (let index = 0; index < 20; index++) await cache.set(`k${index}`, 'x'.repeat(1_000));
    const there = await cache.mget(Array.from({ length: 20 }, (_, index) => `k${index}`));
    expect(there.filter((value) => value !== undefined)).toHaveLength(8);
  });

  it.each([
    [{ memory: { max: 0 } }, /"cache.memory.max" is 0/],
    [{ memory: { size: 1 } }, /Unknown option "cache.memory.size"/],
    [{ memory: {}, redis: 'redis://localhost' }, /"cache.memory" and "cache.redis"/],
    [{ enabled: 'no' }, /"cache.enabled" is "no"/],
    [{ l1: { whileAway: -1 } }, /"cache.l1.whileAway" is -1/],
    [{ defaults: { forceFresh: true } }, /Unknown cache option "forceFresh"/],
    [{ defaults: { restAfterError: -1 } }, /"restAfterError" is -1/],
  ])('%p is refused', async (cache, message) => {
    await expect(openCache({ redis: 'redis://127.0.0.1:1', cache: cache as never })).rejects.toThrow(message);
  });
});

it('decorated methods are forced, given up and kept stale as their options say', async () => {
  @Injectable()
  class Products {
    loads = 0;

    @Cached('product:<0>', { forceFresh: (_id: number, fresh: boolean) => fresh })
    async find(_id: number, _fresh: boolean): Promise<number> {
      return ++this.loads;
    }

    @Cached('abandoned', { loaderTimeout: 200, signal: (signal: AbortSignal) => signal })
    async abandoned(_signal: AbortSignal): Promise<number> {
      return new Promise(() => {});
    }

    @CachePut('put', { ttl: '1h', jitter: 0, staleTtl: '1h' })
    async put(): Promise<string> {
      return 'put';
    }
  }
  await using application = await cacheApp({ providers: [Products] });
  const products = application.app.get(Products);
  expect([await products.find(1, false), await products.find(1, true), await products.find(1, false)]).toEqual([
    1, 2, 2,
  ]);
  const controller = new AbortController();
  const waiting = products.abandoned(controller.signal);
  controller.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await products.put();
  expect(await application.cache.ttl('put')).toBeGreaterThan(7_000_000);
});
