import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheEntryOptions, CacheService } from 'nest-redis-lock';
import {
  type CacheInstance,
  clientWithBusThrough,
  closeCaches,
  openCache,
  openCaches,
} from '../support/cache-instance.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { Gate } from '../support/gate.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

describe('races', () => {
  /** Keys in one race, all at once. */
  const KEYS = 500;
  /** In capitals, as the digits of the time when a value expires are small letters, too. */
  const OLD = 'OLD';

  let server: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];
  let races = 0;

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
    instances = await openCaches(2, server.port, { l1: { max: 10_000 }, commandTimeout: '5s' });
  });
  beforeEach(() => redis.flushall());
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await server.stop();
  });

  /** What changes the values of the keys after the database has them, and what every read must find then. */
  type Write = (cache: CacheService, keys: readonly string[], change: () => void) => Promise<unknown>;

  const tag = 'raced';
  const writes: Record<string, Write> = {
    invalidate: async (cache, keys, change) => {
      change();
      await cache.invalidate(keys);
    },
    'invalidate, one by one': async (cache, keys, change) => {
      change();
      await Promise.all(keys.map((key) => cache.invalidate(key)));
    },
    mutate: (cache, keys, change) => cache.mutate(keys, async () => change()),
    set: async (cache, keys, change) => {
      change();
      await Promise.all(keys.map((key) => cache.set(key, 'new', { tags: [tag] })));
    },
    mset: async (cache, keys, change) => {
      change();
      await cache.mset(Object.fromEntries(keys.map((key) => [key, 'new'])), { tags: [tag] });
    },
    deleteByTag: async (cache, _, change) => {
      change();
      await cache.deleteByTag(tag);
    },
    deleteByPrefix: async (cache, keys, change) => {
      change();
      await cache.deleteByPrefix(keys[0]!.slice(0, keys[0]!.lastIndexOf(':')));
    },
    deleteByPattern: async (cache, keys, change) => {
      change();
      await cache.deleteByPattern(`${keys[0]!.slice(0, keys[0]!.lastIndexOf(':'))}:*`);
    },
    flush: (cache, keys, change) => cache.flush(keys[0]!.slice(0, keys[0]!.lastIndexOf(':')), async () => change()),
  };

  /**
   * Loaders of all keys read the database, and are held; then it is written, from this application or the other one;
   * then they go on. Answers how many values were old, of those that are left in Redis and of those that were read
   * after the write.
   */
  async function race(
    write: Write,
    loading: CacheService,
    writing: CacheService,
  ): Promise<{ left: number; read: number }> {
    races += 1;
    const keys = Array.from({ length: KEYS }, (_, index) => `race:${races}:${index}`);
    const options: CacheEntryOptions = { tags: [tag] };
    const gate = new Gate();
    let [row, begun] = [OLD, 0];
    const loads = keys.map((key) =>
      loading.getOrSet(
        key,
        async () => {
          const found = row;
          begun += 1;
          await gate.opened;
          return found;
        },
        options,
      ),
    );
    await eventually(() => begun === KEYS);
    await write(writing, keys, () => (row = 'new'));
    // Reads that begin while those from before the write are still held.
    const early = writing === loading ? keys.map((key) => loading.getOrSet(key, () => row, options)) : [];
    gate.open();
    await Promise.all(loads);
    const isOld = (value: unknown) => value === OLD;
    const left = (await redis.mget(keys.map((key) => `cache:${key}`))).filter((data) => data?.includes(OLD)).length;
    const reads = await Promise.all([
      ...early,
      ...keys.map((key) => writing.getOrSet(key, () => row, options)),
      ...keys.map((key) => loading.getOrSet(key, () => row, { ...options, consistency: 'strong' })),
    ]);
    return { left, read: reads.filter(isOld).length };
  }

  describe('a load that began before a write (FusionCache #625, #535, #613; JetCache #276)', () => {
    it.each(Object.keys(writes))(
      'never stores what it read, nor is it joined: %s, of its own application',
      async (name) => {
        const [{ cache }] = instances as [CacheInstance];
        // Stored by tag, the value stays until somebody looks at it, and counts as absent.
        const { left, read } = await race(writes[name]!, cache, cache);
        expect({ left: name === 'deleteByTag' ? 0 : left, read }).toEqual({ left: 0, read: 0 });
      },
    );

    it.each(Object.keys(writes))('never stores what it read, nor is it joined: %s, of another one', async (name) => {
      const [{ cache: loading }, { cache: writing }] = instances as [CacheInstance, CacheInstance];
      const { left, read } = await race(writes[name]!, loading, writing);
      expect({ left: name === 'deleteByTag' ? 0 : left, read }).toEqual({ left: 0, read: 0 });
    });

    it('of many keys, with a barrier for replicas that lag: what is read from them is not stored', async () => {
      const [{ cache }, { cache: writing }] = instances as [CacheInstance, CacheInstance];
      const keys = Array.from({ length: KEYS }, (_, index) => `lag:${index}`);
      let primary = 'old';
      let replica = 'old';
      primary = 'new';
      await writing.invalidate(keys, { barrier: 2_000 });
      const early = await Promise.all(keys.map((key) => cache.getOrSet(key, () => replica)));
      expect(new Set(early)).toEqual(new Set(['old']));
      expect(await redis.keys('cache:*')).toEqual([]);
      replica = primary;
      await eventually(async () => (await redis.keys('barrier:*')).length === 0);
      const late = await Promise.all(keys.map((key) => cache.getOrSet(key, () => replica)));
      expect(new Set(late)).toEqual(new Set(['new']));
      await Promise.all(keys.map((key) => cache.has(key)));
      expect(await redis.keys('cache:*')).toHaveLength(KEYS);
    });
  });

  describe('a tag that only the loader names, invalidated while it runs', () => {
    const evicted: Record<string, string> = {
      'is evicted': 'cache-tag:T',
      'is evicted with all that tells of it': 'cache-tag*',
    };
    it.each(Object.keys(evicted))('keeps what it returns from being stored, also where it %s', async (how) => {
      const [{ cache }, { cache: writing }] = instances as [CacheInstance, CacheInstance];
      const gate = new Gate();
      const read = new Gate();
      let row = 'old';
      const loading = cache.getOrSet('tagged', async ({ setTags }) => {
        const found = row;
        read.open();
        setTags(['T']);
        await gate.opened;
        return found;
      });
      await read.opened;
      row = 'new';
      await writing.deleteByTag('T');
      await eventually(() => instances[0]!.engine.invalidatedTags.count > 0);
      await redis.del(...(await redis.keys(evicted[how]!)));
      gate.open();
      expect(await loading).toBe('old');
      expect(await writing.getOrSet('tagged', () => row)).toBe('new');
    });
  });

  describe('reads and writes of a few keys without a pause', () => {
    it('leave no old value behind, in ten rounds of 500 trials', async () => {
      const caches = instances.map(({ cache }) => cache);
      const rows = new Map<string, number>();
      for (let round = 0; round < 10; round++) {
        const trials: Promise<unknown>[] = [];
        for (let trial = 0; trial < 500; trial++) {
          const key = `hot:${trial % 50}`;
          const cache = caches[trial % 2]!;
          const load = async () => {
            const found = rows.get(key) ?? 0;
            if (trial % 3 > 0) await new Promise((resolve) => setTimeout(resolve, trial % 7));
            return found;
          };
          trials.push(cache.getOrSet(key, load));
          if (trial % 5 > 0) continue;
          const write = () => rows.set(key, (rows.get(key) ?? 0) + 1);
          const writing = caches[(trial / 5) % 2]!;
          trials.push(trial % 10 ? writing.mutate(key, async () => write()) : (write(), writing.invalidate(key)));
        }
        await Promise.all(trials);
        for (const [key, row] of rows) {
          for (const cache of caches) {
            expect(await cache.getOrSet(key, () => row, { consistency: 'strong' })).toBe(row);
            await eventually(async () => (await cache.getOrSet(key, () => row)) === row, { within: 1_500, every: 1 });
          }
        }
      }
    });
  });
});

/** How long those wait that do not load is shown where the clock is driven. */
describe('stampedes', () => {
  let server: RedisServer;
  let redis: Redis;
  let instances: CacheInstance[];

  beforeAll(async () => {
    server = await startRedisServer();
    redis = new Redis(server.url);
    instances = await openCaches(4, server.port);
  });
  beforeEach(() => redis.flushall());
  afterAll(async () => {
    await closeCaches(instances);
    redis.disconnect();
    await server.stop();
  });

  /**
   * Reads once with `callers` callers in each of `apps` applications; returns how often the loader ran, and the
   * results.
   */
  async function stampede(apps: number, callers: number, time: number, options?: CacheEntryOptions) {
    let loads = 0;
    const loader = async () => {
      loads += 1;
      await sleep(time);
      return loads;
    };
    const reads = instances
      .slice(0, apps)
      .flatMap(({ cache }) => Array.from({ length: callers }, () => cache.getOrSet('hot', loader, options)));
    const values = new Set(await Promise.all(reads));
    return { loads, values: [...values] };
  }

  describe('many callers of one key (bentocache #2, cacheable #888, #1201)', () => {
    it('1,000 of one application cause one load', async () => {
      expect(await stampede(1, 1_000, 50)).toEqual({ loads: 1, values: [1] });
    });

    it('50 of each of four applications cause one load', async () => {
      expect(await stampede(4, 50, 200)).toEqual({ loads: 1, values: [1] });
    });

    it('one load even if it takes much longer than its lease (the cliff of locks with a fixed time)', async () => {
      expect(await stampede(4, 50, 2_500, { lock: { lease: 1_000 } })).toEqual({ loads: 1, values: [1] });
    });

    it('a lease that is not renewed passes to another load as soon as it ends, and no load stores late', async () => {
      const { loads } = await stampede(2, 5, 250, { lock: { lease: 100, renew: false } });
      expect(loads).toBe(2);
      expect(instances.reduce((sum, { cache }) => sum + cache.stats().refusedCommits, 0)).toBe(2);
      expect(await redis.exists('cache:hot')).toBe(0);
    });

    it('one load even if no message arrives: the others look for its end', async () => {
      const proxy = await FaultProxy.start(server.port);
      const client = clientWithBusThrough({ port: server.port }, proxy.port);
      const deaf = await openCache({ redis: client, cache: {} });
      proxy.silence();
      const loading = instances[0]!.cache.getOrSet('hot', () => sleep(200, 1));
      await eventually(() => redis.exists('lease:{cache:hot}'), { every: 1 });
      expect(await deaf.cache.getOrSet('hot', () => 2, { lock: { wait: '1h' } })).toBe(1);
      await loading;
      await deaf.close();
      client.disconnect();
      await proxy.stop();
    });

    it('one load even of a stale value, whose callers wait for the fresh one', async () => {
      await instances[0]!.cache.getOrSet('hot', () => 0, { ttl: 1, jitter: 0, staleTtl: '1m' });
      await sleep(5);
      const options: CacheEntryOptions = { ttl: '1m', staleTtl: '1m', softTimeout: '1s' };
      expect(await stampede(4, 50, 100, options)).toMatchObject({ loads: 1, values: [1] });
    });
  });

  describe('many callers in processes of their own', () => {
    const start = (time: number, options: CacheEntryOptions = {}) =>
      Child.start('cache-loader.mjs', [String(server.port), 'hot', '50', String(time), JSON.stringify(options)]);

    async function go(...children: Child[]): Promise<void> {
      await Promise.all(children.map((child) => child.says('ready')));
      for (const child of children) await redis.lpush(`start:${child.pid}`, 1);
    }

    it('four of them: one load', async () => {
      const children = [1, 2, 3, 4].map(() => start(300));
      try {
        await go(...children);
        const reads = await Promise.all(children.map((child) => child.says<{ values: number[] }>('done')));
        expect(new Set(reads.flatMap(({ values }) => values)).size).toBe(1);
        expect(await redis.get('loads:hot')).toBe('1');
      } finally {
        await Promise.all(children.map((child) => child.kill()));
      }
    });

    it('others wait for no longer than the lease of one that was killed', async () => {
      const lease = 3_000;
      const options: CacheEntryOptions = { lock: { lease, wait: '1h' } };
      const [killed, other] = [start(60_000, options), start(20, options)];
      try {
        await go(killed);
        await eventually(() => redis.get('loads:hot'));
        await go(other);
        await eventually(async () => (await redis.get('lease:{cache:hot}'))?.startsWith('1'));
        await killed.kill();
        expect(await redis.pttl('lease:{cache:hot}')).toBeLessThanOrEqual(lease);
        expect(await other.says('done')).toEqual({ values: [other.pid] });
        expect(await redis.get('loads:hot')).toBe('2');
      } finally {
        await Promise.all([killed, other].map((child) => child.kill()));
      }
    });
  });
});

describe('a standstill', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  it.each([
    [100, 300],
    [10_000, 300],
    [10_000, 1_000],
  ])(
    'reads of values of %i bytes load nothing for it that this process stood still for %i ms',
    async (size, standstill) => {
      await using app = await openCache({ redis: server.url, cache: {} });
      const { cache } = app;
      const keys = Array.from({ length: 1_000 }, (_, index) => `${size}:${index}`);
      const text = 'x'.repeat(size);
      // One after the other, so that none comes too late on a busy machine.
      for (const key of keys) await cache.set(key, { text }, { onRedisError: 'throw' });
      await cache.get(keys[0]!);
      let loads = 0;
      const reading = keys.map((key) => cache.getOrSet(key, () => (loads += 1)));
      await new Promise((resolve) => setImmediate(resolve));
      for (const until = performance.now() + standstill; performance.now() < until;);
      await Promise.all(reading);
      expect(loads).toBe(0);
      expect(cache.stats()).toMatchObject({ breakerOpened: 0, redisErrors: 0 });
    },
  );
});
