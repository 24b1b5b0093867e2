import { randomUUID } from 'node:crypto';
import { jest } from '@jest/globals';
import fc from 'fast-check';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { CacheConfigError, type CacheOptions, memory, type RedisConnection } from 'nest-redis-lock';
import type { CacheStore, CacheTracker } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import { CacheEngine } from '../../../../lib/cache/cache-engine.js';
import { cacheSettings } from '../../../../lib/cache/options/cache-options.js';
import { FirstLevel } from '../../../../lib/cache/values/first-level.js';
import { LimitedLog } from '../../../../lib/errors/limited-log.js';
import { cacheApp } from '../../../support/cache-app.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { RecordingLogger } from '../../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

/** Records notifications in the order of their arrival. */
class RecordingCacheTracker implements CacheTracker {
  readonly told: string[] = [];

  onChanged(key: string): void {
    this.told.push(`changed ${key}`);
  }
  onAllChanged(): void {
    this.told.push('all changed');
  }
  onTracked(): void {
    this.told.push('tracked');
  }
  onUntracked(why?: Error): void {
    this.told.push(why ? `refused ${why.message}` : 'untracked');
  }
}

/** Nothing of it runs out during a test. */
const TRACKED: CacheOptions = { l1: { bus: 'tracking', ttl: '1h' }, defaults: { ttl: '1h' } };

describe('a tracked first level', () => {
  let engine: CacheEngine;
  let logger: RecordingLogger;
  let store: CacheStore;
  let tracker: CacheTracker;

  beforeEach(async () => {
    store = memoryCacheStore();
    store.track = (given) => (tracker = given);
    logger = new RecordingLogger();
    engine = new CacheEngine(store, cacheSettings(TRACKED), new LimitedLog(logger), FirstLevel);
    engine.start();
    await eventually(() => engine.busConnected);
  });
  afterEach(() => engine.stop());

  const loader = jest.fn(async () => 'loaded');
  const fetch = (key = 'k', load: () => Promise<unknown> = loader) =>
    engine.reads.read(key, load, engine.settings.entries);

  async function isKept(): Promise<boolean> {
    await fetch();
    const { firstLevelHits } = engine.stats();
    await fetch();
    return engine.stats().firstLevelHits > firstLevelHits;
  }

  it('is used only while both the messages and the store tell of changes', async () => {
    expect(await isKept()).toBe(false);
    tracker.onTracked();
    expect(await isKept()).toBe(true);
    tracker.onUntracked();
    expect(engine.stats().firstLevelSize).toBe(0);
    expect(await isKept()).toBe(false);
    engine.onDisconnected();
    tracker.onTracked();
    expect(await isKept()).toBe(false);
    tracker.onUntracked();
    engine.onConnected();
    expect(await isKept()).toBe(false);
    tracker.onTracked();
    expect(await isKept()).toBe(true);
    expect(logger.lines).toEqual([]);
  });

  it('drops what has changed, or everything', async () => {
    tracker.onTracked();
    await Promise.all([fetch('a'), fetch('b'), fetch('c')]);
    tracker.onChanged('b');
    expect(engine.stats().firstLevelSize).toBe(2);
    tracker.onAllChanged();
    expect(engine.stats().firstLevelSize).toBe(0);
  });

  it.each(['onChanged', 'onAllChanged', 'onUntracked'] as const)(
    'keeps nothing that was being read at %s',
    async (event) => {
      tracker.onTracked();
      await fetch();
      engine.local.forget('k');
      const answer = new Gate();
      const read = store.read.bind(store);
      store.read = async (key) => {
        const found = await read(key);
        await answer.opened;
        return found;
      };
      const reading = fetch();
      if (event === 'onChanged') tracker.onChanged('k');
      else tracker[event]();
      answer.open();
      expect(await reading).toBe('loaded');
      expect(engine.stats().firstLevelSize).toBe(0);
    },
  );

  it('does not divide a load under way whose key changes, as it does when it expires', async () => {
    tracker.onTracked();
    const begun = new Gate();
    const end = new Gate();
    const slow = jest.fn(async () => {
      begun.open();
      await end.opened;
      return 'loaded';
    });
    const loading = fetch('k', slow);
    await begun.opened;
    tracker.onChanged('k');
    const joining = fetch('k', slow);
    expect(engine.stats().sharedReads).toBe(1);
    end.open();
    expect(await Promise.all([loading, joining])).toEqual(['loaded', 'loaded']);
    expect(slow).toHaveBeenCalledTimes(1);
  });

  it('is empty and says so while the store refuses', async () => {
    tracker.onTracked();
    tracker.onUntracked(new Error('NOPERM'));
    expect(await isKept()).toBe(false);
    expect(logger.matching(/"cache\.l1\.bus" is "tracking".*NOPERM.*give 'pubsub', or Redis 6/)).toHaveLength(1);
  });
});

describe('cache.l1.bus', () => {
  const cluster = new Cluster([{ port: 1 }], { lazyConnect: true, clusterRetryStrategy: () => null });
  cluster.on('error', () => {});
  afterAll(() => cluster.disconnect());

  it.each([
    ['memory', { backend: memory() }],
    ['a Cluster', { redis: cluster }],
  ])('refuses to track on %s', async (_what, connection) => {
    const starting = cacheApp({}, { module: { redis: undefined, ...connection, cache: TRACKED } as never });
    await expect(starting).rejects.toThrow(CacheConfigError);
    await expect(starting).rejects.toThrow(/"cache\.l1\.bus" is "tracking".*give 'pubsub'$/);
  });
});

describe('an application with a tracked first level', () => {
  let server: RedisServer;
  let foreign: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    foreign = new Redis(server.url);
  });
  afterAll(async () => {
    foreign.disconnect();
    await server.stop();
  });
  afterEach(() => foreign.flushall());

  /** Two processes, as it were, and what reads until the value is answered from the memory of the first. */
  async function start(redis: Redis | string) {
    const module = { redis, prefix: 'shop', cache: TRACKED };
    const [one, another] = [await cacheApp({}, { module }), await cacheApp({}, { module })];
    let loads = 0;
    const read = () => one.cache.getOrSet<unknown>('k', async () => `load ${++loads}`);
    const close = () => Promise.all([one.close(), another.close()]);
    const warm = () =>
      eventually(async () => {
        const { firstLevelHits } = one.cache.stats();
        const value = await read();
        return one.cache.stats().firstLevelHits > firstLevelHits && value;
      });
    return { cache: one.cache, other: another.cache, read, warm, close };
  }

  it.each([
    ['SET', () => foreign.set('shop:cache:k', '42'), 42],
    ['DEL', () => foreign.del('shop:cache:k'), 'load 2'],
    ['PEXPIRE', () => foreign.pexpire('shop:cache:k', 1), 'load 2'],
    ['FLUSHALL', () => foreign.flushall(), 'load 2'],
  ])('answers what is true after the %s of another program', async (_command, change, expected) => {
    const { read, warm, close } = await start(server.url);
    expect(await warm()).toBe('load 1');
    await change();
    await eventually(async () => (await read()) === expected);
    await close();
  });

  it('answers from it what other processes have stored, again and again', async () => {
    const { other, read, warm, close } = await start(server.url);
    for (const value of ['a', 'b', 'c']) {
      await other.set('k', value);
      await eventually(async () => (await read()) === value);
      expect(await warm()).toBe(value);
    }
    await close();
  });

  it('goes on behind the key prefix of its client', async () => {
    const client = new Redis(server.url, { keyPrefix: 'app:' });
    const { read, warm, close } = await start(client);
    await warm();
    await foreign.set('app:shop:cache:k', '42');
    await eventually(async () => (await read()) === 42);
    await close();
    client.disconnect();
  });

  it('reads from Redis while messages of changes cannot arrive, and then drops its values', async () => {
    const proxy = await FaultProxy.start(server.port);
    const client = new Redis(server.url);
    const duplicate = client.duplicate.bind(client);
    client.duplicate = (options?: Partial<RedisOptions>) =>
      duplicate(options?.protocol === 2 ? { ...options, port: proxy.port } : options);
    const { cache, other, read, warm, close } = await start(client);
    expect(await warm()).toBe('load 1');
    proxy.hold();
    proxy.reset();
    await eventually(() => cache.stats().firstLevelSize === 0);
    expect(await read()).toBe('load 1');
    await foreign.set('shop:cache:k', '42');
    expect(await read()).toBe(42);
    await foreign.set('shop:cache:k', '43');
    expect(await read()).toBe(43);
    expect(cache.stats().firstLevelSize).toBe(0);
    await other.set('k', 'theirs');
    proxy.heal();
    expect(await warm()).toBe('theirs');
    await close();
    client.disconnect();
    await proxy.stop();
  });
});

/** Long enough (ms) that nothing which a test does not wait for ends by itself. */
const LONG = 60_000;

it('makes of every value the key that it is of', () => {
  const letters = fc.constantFrom('{', '}', '%', '2', '5', '7', 'D', 'd', ':', 'a', 'ü', '\n', '€', '𝄞');
  const key = fc.oneof(fc.string({ unit: letters, minLength: 1, maxLength: 12 }), fc.string({ unit: 'binary' }));
  const prefix = fc.constantFrom(undefined, 'shop', '{shop}', '%7D', 'cache:');
  fc.assert(
    fc.property(key, prefix, fc.constantFrom(undefined, 'app:', '%25'), (of, before, clientPrefix) => {
      const keys = new RedisCacheKeys(before, clientPrefix);
      expect(keys.keyOf((clientPrefix ?? '') + keys.value(of))).toBe(of);
    }),
    { numRuns: 20_000 },
  );
});

describe('the Redis store tells of changes', () => {
  let server: RedisServer;
  let foreign: Redis;
  let prefix: string;
  let store: CacheStore;
  let told: string[];
  const opened: (() => void)[] = [];

  beforeAll(async () => {
    server = await startRedisServer();
    foreign = new Redis(server.url);
  });
  beforeEach(async () => {
    prefix = randomUUID();
    ({ store, told } = await open(server.url));
  });
  afterEach(() => {
    for (const close of opened.splice(0)) close();
  });
  afterAll(async () => {
    foreign.disconnect();
    await server.stop();
  });

  async function open(connection: RedisConnection): Promise<{ store: CacheStore; told: string[] }> {
    const tracker = new RecordingCacheTracker();
    const fresh = openRedisCacheStore(connection, prefix);
    opened.push(() => fresh.close());
    fresh.track?.(tracker);
    await eventually(() => tracker.told.includes('tracked'));
    return { store: fresh, told: tracker.told };
  }

  /** Through a proxy that only the connection for changes takes. */
  async function openBehind(proxy: FaultProxy): Promise<{ client: Redis; told: string[] }> {
    const client = new Redis(server.url);
    opened.push(() => client.disconnect());
    const duplicate = client.duplicate.bind(client);
    client.duplicate = (options?: Partial<RedisOptions>) => duplicate({ ...options, port: proxy.port });
    return { client, ...(await open(client)) };
  }

  const physical = (key: string) => new RedisCacheKeys(prefix).value(key);
  const set = (key: string, ttl = LONG) => store.set({ key, data: 'x', ttl });
  const times = (message: string) => told.filter((each) => each === message).length;

  /** Forgets the messages received so far. */
  async function settle(): Promise<void> {
    const mark = randomUUID();
    await foreign.set(physical(mark), '', 'PX', LONG);
    await eventually(() => told.includes(`changed ${mark}`));
    told.length = 0;
  }

  it.each(['a', 'a}b', '{t}:1', '%7D', 'ü \n€', '*'])('that others make to %j', async (key) => {
    for (const change of [
      () => foreign.set(physical(key), '1'),
      () => foreign.append(physical(key), '2'),
      () => foreign.pexpire(physical(key), LONG),
      () => foreign.persist(physical(key)),
      () => foreign.rename(physical(key), 'elsewhere'),
      () => foreign.rename('elsewhere', physical(key)),
      () => foreign.del(physical(key)),
    ]) {
      await settle();
      await change();
      await eventually(() => told.includes(`changed ${key}`));
    }
    expect(new Set(told)).toEqual(new Set([`changed ${key}`]));
  });

  it('by time', async () => {
    await set('k', 150);
    await settle();
    await eventually(() => told.includes('changed k'));
    expect(await foreign.exists(physical('k'))).toBe(0);
  });

  it('by eviction', async () => {
    await set('k');
    await settle();
    await foreign.config('SET', 'maxmemory-policy', 'allkeys-random');
    try {
      await foreign.config('SET', 'maxmemory', '1');
      await foreign.set('more', 'memory').catch(() => {});
      await eventually(() => told.includes('changed k'));
    } finally {
      await foreign.config('SET', 'maxmemory', '0');
    }
  });

  it.each(['flushall', 'flushdb'] as const)('by %s', async (flush) => {
    await set('k');
    await settle();
    await foreign[flush]();
    await eventually(() => told.includes('all changed'));
  });

  it('of its own prefix only, and of values only', async () => {
    await foreign.set(`other:cache:k`, '1');
    await foreign.set(`${prefix}:cache-tag:t`, '1');
    await foreign.set(`${prefix}x:cache:k`, '1');
    await store.lease({ key: 'k', token: 't', lease: LONG, refresh: false, waits: false });
    await store.beginTags(['t'], LONG);
    await store.set({ key: 'last', data: 'x', ttl: LONG });
    await eventually(() => told.includes('changed last'));
    expect(told).toEqual(['tracked', 'changed last']);
  });

  it.each([{ keyPrefix: 'app:' }, { keyPrefix: '{app}', lazyConnect: true }, { db: 3 }])(
    'to a client with %j',
    async (options) => {
      const client = new Redis(server.url, options);
      opened.push(() => client.disconnect());
      const { told: heard } = await open(client);
      await foreign.set((options.keyPrefix ?? '') + physical('a}b'), '1');
      await eventually(() => heard.includes('changed a}b'));
    },
  );

  it('again after its connection was killed, and says that it did not in between', async () => {
    const clients = (await foreign.client('LIST')) as string;
    const tracking = clients.split('\n').filter((line) => /flags=\w*B/.test(line));
    expect(tracking).toHaveLength(1);
    const id = /id=(\d+)/.exec(tracking[0] as string)?.[1] as string;
    await foreign.client('KILL', 'ID', id);
    await eventually(() => times('tracked') === 2);
    expect(told).toEqual(['tracked', 'untracked', 'tracked']);
    await foreign.set(physical('k'), '1');
    await eventually(() => told.includes('changed k'));
  });

  it('and notices that their messages no longer arrive', async () => {
    const proxy = await FaultProxy.start(server.port);
    const { told: heard } = await openBehind(proxy);
    proxy.silence();
    await eventually(() => heard.filter((each) => each === 'tracked').length === 2);
    expect(heard).toEqual(['tracked', 'untracked', 'tracked']);
    await foreign.set(physical('k'), '1');
    await eventually(() => heard.includes('changed k'));
    await proxy.stop();
  });

  it('until it is closed', async () => {
    store.close();
    await eventually(async () => {
      const clients = (await foreign.client('LIST')) as string;
      return !/flags=\w*B/.test(clients);
    });
    expect(told).toEqual(['tracked']);
  });

  it('unless Redis refuses, which it says and tries again', async () => {
    await foreign.acl('SETUSER', 'app', 'on', '>pw', '~*', '&*', '+@all', '-client|tracking');
    const tracker = new RecordingCacheTracker();
    const refused = openRedisCacheStore({ port: server.port, username: 'app', password: 'pw' }, prefix);
    opened.push(() => refused.close());
    refused.track?.(tracker);
    await eventually(() => tracker.told.some((each) => /^refused NOPERM .*client\|tracking/.test(each)));
    await foreign.acl('SETUSER', 'app', '+client|tracking');
    await eventually(() => tracker.told.includes('tracked'), { within: 20_000 });
    expect(tracker.told).toHaveLength(2);
  });
});
