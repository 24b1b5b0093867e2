import { Redis } from 'ioredis';
import type { CacheService } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import { withTemplate } from '../../../../lib/options/fixed-options.js';
import { closeCaches, openCaches, type CacheInstance } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

const MISS = { expect: 'miss' } as const;
const COUNTED = ['read', 'readOrLease', 'lease', 'commit', 'readTags', 'beginTags', 'release'] as const;

/** A cache in memory that notes which calls its store gets. */
function countedCache() {
  const scripted = scriptedCache();
  const { store } = scripted;
  const calls: string[] = [];
  for (const name of COUNTED) {
    const method = Reflect.get(store, name) as (...args: unknown[]) => unknown;
    Reflect.set(store, name, (...args: unknown[]) => {
      calls.push(name);
      return method.apply(store, args);
    });
  }
  return {
    ...scripted,
    calls,
    /** The calls of the store since the last time. */
    taken: () => calls.splice(0),
    [Symbol.dispose]: () => scripted[Symbol.dispose](),
  };
}

describe('a read that expects a miss', () => {
  it('asks for the value or the lease at once', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    expect(await cache.getOrSet('k', () => 1, MISS)).toBe(1);
    await cache.has('k');
    expect(taken()).toEqual(['readOrLease', 'commit', 'read']);
    expect(await cache.getOrSet('k', () => 2, MISS)).toBe(1);
    expect(taken()).toEqual(['readOrLease']);
  });

  it('reads first where it expects a hit, and by default', async () => {
    using counted = countedCache();
    for (const options of [{ expect: 'hit' } as const, {}]) {
      await counted.cache.getOrSet('k', () => 1, options);
      await counted.cache.invalidate('k');
      expect(counted.taken()).toEqual(['read', 'lease', 'commit']);
    }
  });

  it('asks for the versions of its tags in the same round trip, also where it finds a value', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    const options = { ...MISS, tags: ['a', 'b'] };
    expect(await cache.getOrSet('k', () => 1, options)).toBe(1);
    await cache.has('k');
    expect(taken()).toEqual(['readOrLease', 'beginTags', 'commit', 'read', 'readTags']);
    expect(await cache.getOrSet('k', () => 2, options)).toBe(1);
    expect(taken()).toEqual(['readOrLease', 'beginTags']);
  });

  it('does not take what was invalidated by tag, or expired softly, for fresh', async () => {
    using counted = countedCache();
    const { cache } = counted;
    const options = { ...MISS, tags: ['a'], staleTtl: '1m' } as const;
    await cache.getOrSet('k', () => 1, options);
    await cache.deleteByTag('a');
    expect(await cache.getOrSet('k', () => 2, options)).toBe(2);
    await cache.expireByTag('a');
    expect(await cache.getOrSet('k', () => 3, { ...options, consistency: 'strong' })).toBe(3);
    expect(await cache.getOrSet('k', () => 4, { ...options, tags: ['a', 'b'] })).toBe(4);
    await cache.getOrSet('named', ({ setTags }) => (setTags(['c']), 1), MISS);
    await cache.deleteByTag('c');
    expect(await cache.getOrSet('named', () => 2, MISS)).toBe(2);
  });

  it('serves a stale value, and refreshes it', async () => {
    using counted = countedCache();
    const { cache } = counted;
    const options = { ...MISS, staleTtl: '1m', jitter: 0 } as const;
    await cache.getOrSet('k', () => 'old', options);
    await cache.expire('k', { soft: true });
    expect(await cache.getOrSet('k', () => 'new', options)).toBe('old');
    await eventually(async () => (await cache.getOrSet('k', () => 'newer', options)) === 'new');
  });

  it('replaces data that it cannot read', async () => {
    using counted = countedCache();
    const { cache, store } = counted;
    await store.set({ key: 'k', data: 'of others', ttl: 60_000 });
    expect(await cache.getOrSet('k', () => 'new', MISS)).toBe('new');
    expect(await cache.get('k')).toBe('new');
  });

  it('waits where another caller loads, and gets its value', async () => {
    using counted = countedCache();
    const { cache, store } = counted;
    expect(await store.readOrLease!({ key: 'k', token: 'other', lease: 60_000, waits: false })).toMatchObject({
      status: 'leased',
    });
    const reading = cache.getOrSet('k', () => 'mine', MISS);
    await eventually(() => cache.stats().waits === 1);
    const sealed = await sealedAs('theirs');
    await store.commit({ key: 'k', token: 'other', data: sealed, ttl: 60_000 });
    expect(await reading).toBe('theirs');
    expect(cache.stats()).toMatchObject({ misses: 1, loads: 0 });
  });

  it('loads without storing behind a barrier', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    await cache.mutate('k', async () => {
      expect(await cache.getOrSet('k', () => 1, MISS)).toBe(1);
      expect(taken()).toEqual(['readOrLease']);
    });
    expect(await cache.get('k')).toBeUndefined();
    expect(cache.stats().unstoredLoads).toBe(1);
  });

  it('asks the Bloom filter first, and loads always with forceFresh', async () => {
    using counted = countedCache();
    const { cache, store, taken } = counted;
    const filter = cache.bloomFilter('ids', { capacity: 10 });
    store.bits.has = () => Promise.resolve([false]);
    expect(await cache.getOrSet('k', () => 1, { ...MISS, bloom: { filter, id: '1' } })).toBeNull();
    expect(taken()).toEqual(['read']);
    await cache.getOrSet('k', () => 1, { ...MISS, forceFresh: true });
    expect(taken()).toEqual(['lease', 'commit']);
  });

  it('gives a lease back that is granted after the call was given up', async () => {
    using counted = countedCache();
    const { cache, store } = counted;
    const [gate, readOrLease] = [new Gate(), store.readOrLease!.bind(store)];
    store.readOrLease = (request) =>
      new Promise((resolve, reject) => void gate.opened.then(() => readOrLease(request).then(resolve, reject)));
    expect(await cache.getOrSet('k', () => 1, MISS)).toBe(1);
    expect(cache.stats()).toMatchObject({ redisErrors: 1, unstoredLoads: 1 });
    gate.open();
    await eventually(() => counted.calls.includes('release'));
    await eventually(async () => (await store.inspect('k')).lease === null);
  });

  it('takes the way of other stores where the store cannot', async () => {
    const memory = scriptedCache().store;
    const lacking = new Proxy(memory, {
      get: (target, name) => {
        const member: unknown = name === 'readOrLease' ? undefined : Reflect.get(target, name);
        return typeof member === 'function' ? (member.bind(target) as unknown) : member;
      },
    });
    using scripted = scriptedCache({}, lacking);
    expect(await scripted.cache.getOrSet('k', () => 1, MISS)).toBe(1);
    expect(await scripted.cache.getOrSet('k', () => 2, MISS)).toBe(1);
  });

  /** What a cache stores for the value. */
  async function sealedAs(value: unknown): Promise<Buffer> {
    using another = scriptedCache();
    await another.cache.set('k', value);
    return (await answerOf(another.store.read('k'))) as Buffer;
  }
});

function answerOf<T>(pending: ReturnType<CacheStore['read']> | Promise<T>): Promise<unknown> {
  return new Promise((resolve, reject) => void pending.then(resolve, reject));
}

describe('what the last reads have found', () => {
  /** Reads keys that are not there. */
  const miss = async (cache: Pick<CacheService, 'getOrSet'>, count: number, options = {}) => {
    for (let time = 0; time < count; time++) await cache.getOrSet(`absent:${Math.random()}`, () => 1, options);
  };

  it('decides how the next one asks', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    await miss(cache, 10);
    taken();
    await miss(cache, 1);
    expect(taken()).toEqual(['readOrLease', 'commit']);
    await cache.set('there', 1);
    for (let time = 0; time < 40; time++) await cache.getOrSet('there', () => 2);
    taken();
    await cache.getOrSet('there', () => 2);
    await miss(cache, 1);
    expect(taken()).toEqual(['read', 'read', 'lease', 'commit']);
  });

  it('counts for each key template, or namespace, by itself', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    const [cold, warm] = [withTemplate({}, 'cold:<0>'), withTemplate({}, 'warm:<0>')];
    await miss(cache, 10, cold);
    await miss(cache.namespace('tenant'), 10);
    taken();
    await miss(cache, 1, cold);
    await miss(cache.namespace('tenant'), 1);
    expect(taken()).toEqual(['readOrLease', 'commit', 'readOrLease', 'commit']);
    await miss(cache, 1, warm);
    await miss(cache, 1);
    expect(taken()).toEqual(['read', 'lease', 'commit', 'read', 'lease', 'commit']);
  });

  it('does not count a value that is there and cannot be served as a miss', async () => {
    using counted = countedCache();
    const { cache, store, taken } = counted;
    for (let time = 0; time < 20; time++) {
      await store.set({ key: 'k', data: 'of others', ttl: 60_000 });
      await cache.getOrSet('k', () => 1);
    }
    taken();
    await miss(cache, 1);
    expect(taken()).toEqual(['read', 'lease', 'commit']);
  });

  it('is forgotten where there are very many namespaces', async () => {
    using counted = countedCache();
    const { cache, taken } = counted;
    await miss(cache, 10);
    for (let tenant = 0; tenant < 1_000; tenant++) await cache.namespace(`t${tenant}`).getOrSet('k', () => 1);
    taken();
    await miss(cache, 1);
    expect(taken()).toEqual(['read', 'lease', 'commit']);
  });

  it('is not what an option says', async () => {
    using counted = countedCache();
    await expect(counted.cache.getOrSet('k', () => 1, { expect: 'misses' as unknown as 'miss' })).rejects.toMatchObject(
      { code: 'CACHE_CONFIG', message: expect.stringMatching(/"expect" is "misses"; give/) },
    );
  });
});

describe('on Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];
  let cache: CacheService;

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
    instances = await openCaches(1, server.port);
    cache = (instances[0] as CacheInstance).cache;
  });
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await server.stop();
  });

  /** How often Redis has carried out each command since the last time, those inside scripts included. */
  async function commands(): Promise<Record<string, number>> {
    const info = await redis.info('commandstats');
    await redis.config('RESETSTAT');
    const found = [...info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)]
      .map(([, name, count]) => [name, Number(count)])
      // What the connection for messages sends each second, and this one.
      .filter(([name]) => !/^(info|config|ping|publish)/.test(String(name)));
    return Object.fromEntries(found) as Record<string, number>;
  }

  it('a miss is one script until the loader runs, and one that stores', async () => {
    await cache.getOrSet('scripts are known', () => 1, MISS);
    await cache.has('scripts are known');
    await commands();
    let before: Record<string, number> = {};
    await cache.getOrSet('k', async () => (before = await commands()), MISS);
    await cache.has('k');
    expect(before).toMatchObject({ evalsha: 1 });
    const after = await commands();
    // Every second read is an MGET of one key. The script that stores has a GET, too.
    const { evalsha, get = 0, mget = 0 } = after;
    expect({ evalsha, reads: get + mget }).toEqual({ evalsha: 1, reads: 2 });
  });

  it('the versions of all its tags are one script more', async () => {
    const options = { ...MISS, tags: ['a', 'b', 'c'] };
    await cache.getOrSet('scripts of tags are known', () => 1, options);
    await cache.has('scripts of tags are known');
    await commands();
    let before: Record<string, number> = {};
    await cache.getOrSet('tagged', async () => (before = await commands()), options);
    expect(before).toMatchObject({ evalsha: 2 });
    expect(await cache.getOrSet('tagged', () => 2, options)).toEqual(before);
    await cache.deleteByTag('c');
    expect(await cache.getOrSet('tagged', () => 2, options)).toBe(2);
  });

  it('misses of many callers take at most 4 commands each', async () => {
    const misses = 480;
    const load = (round: number) =>
      Promise.all(
        Array.from({ length: misses }, async (_, index) => {
          await cache.getOrSet(`many:${round}:${index}`, () => index, MISS);
        }),
      );
    await load(0);
    await commands();
    await load(1);
    await Promise.all(Array.from({ length: misses }, (_, index) => cache.ttl(`many:1:${index}`)));
    // Each question for a time to live is a script.
    const { pttl, evalsha = 0, ...others } = await commands();
    const counted = { ...others, evalsha: evalsha - misses };
    expect(pttl).toBe(misses);
    expect(counted).toMatchObject({ set: 2 * misses });
    const sum = Object.values(counted).reduce((all, each) => all + each, 0);
    expect(sum).toBeLessThanOrEqual(4 * misses);
  });

  it('what is stored under the key and is no value is not loaded over', async () => {
    await redis.hset('cache:foreign', 'a', 1);
    expect(await cache.getOrSet('foreign', () => 'mine', MISS)).toBe('mine');
    expect(await redis.type('cache:foreign')).toBe('hash');
  });
});
