import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import {
  type CacheEntryOptions,
  CacheEvict,
  CacheKeyError,
  CachePut,
  CacheService,
  CacheTimeoutError,
} from 'nest-redis-lock';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import { cacheApp } from '../../../support/cache-app.js';
import {
  type CacheInstance,
  clientWithBusThrough,
  closeCaches,
  openCache,
  openCaches,
} from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { read, server, startRedis } from '../../../support/one-redis.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('the loader', () => {
  let redisServer: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];
  /** Two applications without a first level, and one with. */
  let [a, b, fronted] = [] as unknown as [CacheService, CacheService, CacheService];
  let key: string;
  let tests = 0;

  beforeAll(async () => {
    redisServer = await startRedisServer();
    redis = new Redis(redisServer.url);
    instances = [...(await openCaches(2, redisServer.port)), ...(await openCaches(1, redisServer.port, { l1: {} }))];
    [a, b, fronted] = instances.map(({ cache }) => cache) as [CacheService, CacheService, CacheService];
  });
  beforeEach(() => (key = `key:${++tests}`));
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await redisServer.stop();
  });

  const lease = () => `lease:{cache:${key}}`;

  /** Waits for the load of another caller that no test outlives. */
  const PATIENT = { loaderTimeout: '1h', lock: { wait: '1h', onTimeout: 'throw' } } as const;

  /** Stores a value that is stale at once, and stays for a minute. */
  async function storeStale(value: unknown, options: CacheEntryOptions = {}): Promise<void> {
    await a.getOrSet(key, () => value, { ttl: 1, jitter: 0, staleTtl: '1m', ...options });
    await sleep(5);
  }

  describe('a stale value', () => {
    const stale: CacheEntryOptions = { ttl: '1m', staleTtl: '1m' };

    it('is kept for its ttl and its staleTtl together', async () => {
      await a.getOrSet(key, () => 1, { ttl: '10s', staleTtl: '20s', jitter: 0 });
      expect(await a.ttl(key)).toBeGreaterThan(29_000);
    });

    it('is returned at once while one caller of all applications reloads, whose loader gets it', async () => {
      await storeStale('old');
      const [gate, told] = [new Gate(), [] as unknown[]];
      const loader = async ({ stale: old }: { stale: unknown }) => {
        told.push(old);
        await gate.opened;
        return 'new';
      };
      for (let time = 0; time < 5; time++) {
        const reads = [a, b, fronted, a, b, fronted].map((cache) => cache.getOrSet(key, loader, stale));
        expect(new Set(await Promise.all(reads))).toEqual(new Set(['old']));
      }
      gate.open();
      await eventually(async () => (await a.getOrSet(key, loader, stale)) === 'new');
      expect(await fronted.getOrSet(key, loader, stale)).toBe('new');
      expect(told).toEqual(['old']);
    });

    it('is no value for get, has, and strong reads', async () => {
      await storeStale('old');
      expect([await a.get(key), await a.has(key)]).toEqual([undefined, false]);
      expect(await a.getOrSet(key, () => 'new', { ...stale, consistency: 'strong' })).toBe('new');
    });

    it('is not returned to a strong read that shares the load of others, whichever began first', async () => {
      const proxy = await FaultProxy.start(redisServer.port);
      const client = clientWithBusThrough({ port: redisServer.port }, proxy.port);
      proxy.hold();
      const deaf = await openCache({ redis: client, cache: {} }, { heard: false });
      await storeStale('old');
      const gate = new Gate();
      const failing = () => gate.opened.then(() => Promise.reject(new Error('database down')));
      const first = deaf.cache.getOrSet(key, failing, { consistency: 'strong' });
      const eventual = deaf.cache.getOrSet(key, () => 'new', stale);
      const strong = deaf.cache.getOrSet(key, () => 'new', { ...stale, consistency: 'strong' });
      gate.open();
      await expect(first).rejects.toThrow('database down');
      expect(await strong).toBe('new');
      await eventual;
      proxy.heal();
      await deaf.close();
      client.disconnect();
      await proxy.stop();
    });

    it('waits for the fresh one for as long as softTimeout', async () => {
      await storeStale('old');
      const soft = { ...stale, softTimeout: 100 };
      expect(await a.getOrSet(key, () => 'new', soft)).toBe('new');
      key = `${key}:slow`;
      await storeStale('old');
      const gate = new Gate();
      expect(await a.getOrSet(key, () => gate.opened.then(() => 'new'), { ...soft, ...PATIENT })).toBe('old');
      expect(await b.getOrSet(key, () => 'of b', { ...soft, ...PATIENT })).toBe('old');
      gate.open();
      await eventually(async () => (await b.get(key)) === 'new');
    });

    it('is the answer where the loader fails, unless staleIfError is off', async () => {
      const failing = () => Promise.reject(new Error('database down'));
      await storeStale('old');
      expect(await a.getOrSet(key, failing, { ...stale, softTimeout: '1s' })).toBe('old');
      const strict = { ...stale, softTimeout: '1s', staleIfError: false } as const;
      await expect(a.getOrSet(key, failing, strict)).rejects.toThrow('database down');
      expect(await redis.exists(lease())).toBe(0);
    });

    it('goes with an invalidation, also while it is loaded anew (bentocache #71, #63; FusionCache #628)', async () => {
      for (const invalidate of [() => b.invalidate(key), () => b.deleteByTag('tag')]) {
        key = `${key}:again`;
        const options: CacheEntryOptions = { ...stale, tags: ['tag'] };
        await storeStale('old', { tags: ['tag'] });
        const gate = new Gate();
        expect(await a.getOrSet(key, () => gate.opened.then(() => 'before'), options)).toBe('old');
        await eventually(() => redis.exists(lease()));
        await invalidate();
        gate.open();
        expect(await a.getOrSet(key, () => 'after', options)).toBe('after');
        await eventually(() => a.stats().refusedCommits + a.stats().loads > 0);
        expect(await b.getOrSet(key, () => 'never', options)).toBe('after');
      }
    });
  });

  describe('refreshAhead', () => {
    it('has one refresher over all applications, once the part of the ttl has passed', async () => {
      const options: CacheEntryOptions = { ttl: 2_000, jitter: 0, refreshAhead: 0.1 };
      await a.getOrSet(key, () => 0, options);
      let [loads, running] = [0, 0];
      const most: number[] = [];
      const loader = async () => {
        most.push(++running);
        await sleep(30);
        running -= 1;
        return ++loads;
      };
      expect(await a.getOrSet(key, loader, options)).toBe(0);
      expect(loads).toBe(0);
      await eventually(async () => {
        const reads = [a, b, fronted].map((cache) => cache.getOrSet(key, loader, options));
        return (await Promise.all(reads)).every((value) => value >= 1);
      });
      expect(Math.max(...most)).toBe(1);
      expect(loads).toBe(1);
      expect(await a.ttl(key)).toBeGreaterThan(1_500);
    });

    it('does not load again what another application has refreshed since it was kept in the first level', async () => {
      const options: CacheEntryOptions = { ttl: 2_000, jitter: 0, refreshAhead: 0.1 };
      for (const cache of [a, fronted]) await cache.getOrSet(key, () => 0, options);
      let loads = 0;
      const loader = () => ++loads;
      await sleep(220);
      await a.getOrSet(key, loader, options);
      await eventually(async () => (await a.get(key)) === 1);
      await eventually(async () => (await fronted.getOrSet(key, loader, options)) === 1);
      expect(loads).toBe(1);
    });

    it('by chance refreshes before the end what takes long to load, and not what is quick', async () => {
      const options: CacheEntryOptions = { ttl: 60_000, jitter: 0, refreshAhead: { beta: 1_000 } };
      await a.getOrSet(key, () => sleep(60), options);
      await a.getOrSet(`${key}:quick`, () => 0, options);
      let [slow, quick] = [0, 0];
      await eventually(async () => {
        await a.getOrSet(key, () => ++slow, options);
        await a.getOrSet(`${key}:quick`, () => ++quick, { ...options, refreshAhead: true });
        return slow > 0;
      });
      expect(quick).toBe(0);
    });
  });

  describe('a loader', () => {
    it('that takes longer than loaderTimeout is aborted, and its lease ends at once', async () => {
      let signal: AbortSignal | undefined;
      const options: CacheEntryOptions = { loaderTimeout: 100, lock: { lease: '1h' } };
      const slow = a.getOrSet(key, (context) => new Promise(() => (signal = context.signal)), options);
      await expect(slow).rejects.toBeInstanceOf(CacheTimeoutError);
      await expect(slow).rejects.toMatchObject({
        keys: [key],
        message: expect.stringMatching(/loaderTimeout \(100 ms\)/),
      });
      expect(signal?.aborted).toBe(true);
      expect(signal?.reason).toBeInstanceOf(CacheTimeoutError);
      expect(await b.getOrSet(key, () => 'new', PATIENT)).toBe('new');
    });

    it('that fails rejects all who wait for it here with its own error, and stores nothing (cacheable #1554)', async () => {
      const error = new Error('mine');
      let loads = 0;
      const failing = async () => {
        loads += 1;
        await sleep(20);
        throw error;
      };
      const reads = await Promise.allSettled(Array.from({ length: 5 }, () => a.getOrSet(key, failing)));
      expect(reads).toEqual(reads.map(() => ({ status: 'rejected', reason: error })));
      expect(loads).toBe(1);
      await expect(a.getOrSet(key, () => { throw error })).rejects.toBe(error); // prettier-ignore
      expect(await a.getOrSet(key, () => 2)).toBe(2);
    });

    it('may ask for its own key: it does not wait for itself (JetCache #234)', async () => {
      for (const cache of [a, fronted]) {
        key += '+';
        const outer = cache.getOrSet(key, async () => {
          const inner = await cache.getOrSet(key, async () => cache.getOrSet(key, () => 'inmost'));
          return `outer ${inner}`;
        });
        expect(await outer).toBe('outer inmost');
        expect(await b.get(key)).toBe('outer inmost');
      }
    });

    it('may ask for a key whose loader asks for this one: neither waits for ever', async () => {
      const both = new Gate();
      let begun = 0;
      const load = (own: string, next: string) => async () => {
        if (++begun === 2) both.open();
        await both.opened;
        return `${own} and ${await a.getOrSet(next, () => next, PATIENT)}`;
      };
      const first = a.getOrSet('one', load('one', 'two'), PATIENT);
      const second = a.getOrSet('two', load('two', 'one'), PATIENT);
      const values = await Promise.all([first, second]);
      expect(values.map((value) => value.slice(0, 7))).toEqual(['one and', 'two and']);
    });

    it('waits for that of another application, or not, as lock says', async () => {
      const gate = new Gate();
      const first = b.getOrSet(key, () => gate.opened.then(() => 'of b'));
      await eventually(() => redis.exists(lease()));
      const loadHere = () => 'of a';
      expect(await a.getOrSet(key, loadHere, { lock: false })).toBe('of a');
      expect(await a.getOrSet(key, loadHere, { lock: { wait: 50 } })).toBe('of a');
      const throwing = a.getOrSet(key, loadHere, { lock: { wait: 50, onTimeout: 'throw' } });
      await expect(throwing).rejects.toMatchObject({
        code: 'CACHE_TIMEOUT',
        message: expect.stringMatching(/lock.wait \(50 ms\)/),
      });
      expect(await redis.exists(`cache:${key}`)).toBe(0);
      const waiting = a.getOrSet(key, loadHere);
      gate.open();
      expect(await Promise.all([first, waiting])).toEqual(['of b', 'of b']);
    });
  });

  describe('tags', () => {
    it('that the loader names count for what it was loading, also when they are deleted meanwhile', async () => {
      for (const name of ['known', 'constructor', '__proto__', 'a b:{c}']) {
        key = `${key}:${name}`;
        const [named, gate] = [new Gate(), new Gate()];
        const loading = a.getOrSet(key, async ({ setTags }) => {
          setTags([name]);
          named.open();
          await gate.opened;
          return 'before';
        });
        await named.opened;
        await b.deleteByTag(name);
        gate.open();
        await loading;
        const tagged = (value: string) => a.getOrSet(key, ({ setTags }) => (setTags([name]), value));
        expect(await tagged('after')).toBe('after');
        expect(await tagged('again')).toBe('after');
        await b.deleteByTag(name);
        expect(await tagged('last')).toBe('last');
        expect(await a.has(key)).toBe(true);
      }
    });

    it('of the options count from before the loader runs, in each order of events', async () => {
      const options = { tags: ['x', 'y'] };
      const gate = new Gate();
      const loading = a.getOrSet(key, () => gate.opened.then(() => 'before'), options);
      await eventually(() => redis.exists(lease()));
      await b.deleteByTag('y');
      gate.open();
      expect(await loading).toBe('before');
      expect(await b.getOrSet(key, () => 'after', options)).toBe('after');
    });

    it('are needed of a value by who asks with them, at both levels (bentocache #83)', async () => {
      await fronted.getOrSet(key, () => 'untagged');
      expect(await fronted.getOrSet(key, () => 'tagged', { tags: ['added'] })).toBe('tagged');
      expect(await fronted.getOrSet(key, () => 'again', { tags: ['added'] })).toBe('tagged');
      await a.deleteByTag('added');
      const last = () => fronted.getOrSet(key, () => 'last', { tags: ['added'] });
      await eventually(async () => (await last()) === 'last', { within: 1_500, every: 1 });
    });

    it('are looked at by get and has, too (bentocache #64)', async () => {
      await a.set(key, 1, { tags: ['seen'] });
      expect([await b.get(key), await b.has(key)]).toEqual([1, true]);
      await a.deleteByTag(['unseen', 'seen']);
      expect([await b.get(key), await b.has(key)]).toEqual([undefined, false]);
    });
  });
});

describe('a failure', () => {
  startRedis();

  describe('A loader', () => {
    it('may return what throws when it is looked at', async () => {
      using scripted = scriptedCache();
      const strict = new Proxy(
        {},
        {
          get: (_, name) => {
            throw new Error(`no ${String(name)}`);
          },
        },
      );
      await expect(scripted.cache.getOrSet('k', () => strict)).rejects.toThrow('no then');
      expect(await read(scripted.cache, 'k', 'next')).toBe('next');
    });

    it('that has ended leaves no trace in what it began', async () => {
      using scripted = scriptedCache();
      const { cache } = scripted;
      const gate = new Gate();
      let later: Promise<string> | undefined;
      const value = await cache.getOrSet('k', () => {
        later = gate.opened.then(() => read(cache, 'k', 'loaded again'));
        return 'loaded';
      });
      const other = new Gate();
      const loading = cache.getOrSet('other', () => other.opened.then(() => ''));
      await eventually(() => scripted.engine.counters.loads === 2);
      gate.open();
      expect(await later).toBe(value);
      other.open();
      await loading;
    });
  });

  it('A store whose client is closed says so at once, also of tags', async () => {
    const client = new Redis(server.url);
    const store = openRedisCacheStore(client, 'closed');
    await client.ping();
    client.disconnect();
    await eventually(() => client.status === 'end');
    const soon = (answer: unknown) => Promise.race([answer, sleep(1_000).then(() => 'too late')]);
    await expect(soon(store.readTags(['t']))).rejects.toThrow('closed');
    await expect(soon(store.beginTags(['t'], 1_000))).rejects.toThrow('closed');
    store.close();
  });

  describe('A decorated method', () => {
    let ran = 0;

    @Injectable()
    class Shop {
      @CacheEvict((id: number) => (id === 1 ? '' : `product:${id}`))
      async change(_id: number): Promise<void> {
        ran += 1;
      }

      @CachePut('put:<0>', { value: async (result: string) => `${result}!` })
      async put(_id: number): Promise<string> {
        return 'made';
      }
    }

    it('does not run where its key function makes no key', async () => {
      await using app = await cacheApp({ providers: [Shop] });
      await expect(app.app.get(Shop).change(1)).rejects.toThrow(CacheKeyError);
      expect(ran).toBe(0);
    });

    it('puts what the promise of value resolves to', async () => {
      await using app = await cacheApp({ providers: [Shop] });
      await app.app.get(Shop).put(1);
      expect(await app.cache.get('put:1')).toBe('made!');
    });
  });
});
