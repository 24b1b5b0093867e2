import { jest } from '@jest/globals';
import { CacheConfigError, memory, type CacheOptions, type CacheStore, type CacheTracker } from 'nest-redis-lock';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { CacheEngine } from '../../../../lib/cache/cache-engine.js';
import { cacheSettings } from '../../../../lib/cache/options/cache-options.js';
import { LimitedLog } from '../../../../lib/errors/limited-log.js';
import { FirstLevel } from '../../../../lib/cache/values/first-level.js';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { cacheApp } from '../../../support/cache-app.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { RecordingLogger } from '../../../support/recording-logger.js';

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
