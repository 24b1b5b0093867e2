import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { CacheBackendError, type CacheOptions, type CacheService } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import { openRedisCacheStore } from '../../lib/backends/redis/cache/redis-cache-store.js';
import { CACHE_CALLS, loaded, THROWING } from '../support/cache-calls.js';
import { type CacheInstance, openCache } from '../support/cache-instance.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

describe('the cache', () => {
  const COMMAND_TIMEOUT = 100;
  const OPTIONS: CacheOptions = { commandTimeout: COMMAND_TIMEOUT, l1: {}, breaker: { open: '2s' } };

  let server: RedisServer;
  let direct: CacheInstance;
  const rejections: unknown[] = [];
  const remember = (reason: unknown) => rejections.push(reason);

  beforeAll(async () => {
    process.on('unhandledRejection', remember);
    server = await startRedisServer();
    direct = await openCache({ redis: server.url, cache: { l1: {} } });
  });
  afterAll(async () => {
    await direct.close();
    await server.stop();
    process.off('unhandledRejection', remember);
    expect(rejections).toEqual([]);
  });

  /** An application behind a proxy that can take Redis away from it alone. */
  async function behindProxy(cache: CacheOptions = OPTIONS) {
    const proxy = await FaultProxy.start(server.port);
    const app = await openCache({ redis: { host: '127.0.0.1', port: proxy.port }, cache });
    const end = async () => {
      proxy.heal();
      await app.close();
      await proxy.stop();
    };
    return { proxy, app, cache: app.cache, [Symbol.asyncDispose]: end };
  }

  // How long each of them takes is shown where the clock is driven: here, Redis says nothing before they have answered.
  describe('every call answers (cacheable #1208, keyv #1496, #1679)', () => {
    const away: Record<string, (proxy: FaultProxy) => void> = {
      'says nothing': (proxy) => proxy.hold(),
      'has connections that are dead without a word': (proxy) => proxy.silence(),
    };

    it.each(Object.keys(away))('when Redis %s', async (how) => {
      await using apart = await behindProxy();
      away[how]!(apart.proxy);
      for (const [name, [call, answer]] of Object.entries(CACHE_CALLS)) {
        expect({ name, value: await call(apart.cache) }).toEqual({ name, value: answer });
      }
      for (const [name, call] of Object.entries(THROWING)) {
        const value = await call(apart.cache).catch((error: unknown) => error);
        expect({ name, value }).toEqual({ name, value: expect.any(CacheBackendError) });
      }
    });

    it('even when many come at once, with at most one load after the other', async () => {
      await using apart = await behindProxy();
      apart.proxy.hold();
      let loads = 0;
      const load = () => {
        loads += 1;
        return loaded();
      };
      const reads: Promise<unknown>[] = [];
      for (let burst = 0; burst < 20; burst++) {
        for (let each = 0; each < 20; each++) reads.push(apart.cache.getOrSet('hot', load));
        await sleep(10);
      }
      await Promise.all(reads);
      expect(loads).toBeLessThan(20);
    });

    it('on a client of the user that retries for ever', async () => {
      const proxy = await FaultProxy.start(server.port);
      const redis = new Redis({ host: '127.0.0.1', port: proxy.port, maxRetriesPerRequest: null });
      redis.on('error', () => {});
      const app = await openCache({ redis, cache: OPTIONS });
      await proxy.stop();
      for (const name of ['getOrSet', 'set', 'invalidate', 'deleteByTag', 'deleteByPrefix'] as const) {
        const [call, value] = CACHE_CALLS[name]!;
        expect({ name, value: await call(app.cache) }).toEqual({ name, value });
      }
      await app.close();
      redis.disconnect();
    });
  });

  describe('a Redis that is stopped', () => {
    it('gets no commands, and is used again once it answers', async () => {
      await using app = await openCache({ redis: server.url, cache: OPTIONS });
      await app.cache.set('stopped', 'stored');
      server.process.pause();
      try {
        expect(await app.cache.getOrSet('stopped', loaded)).toBe('loaded');
        expect(app.cache.stats().breakerOpened).toBe(1);
        for (let time = 0; time < 5; time++) {
          expect(await app.cache.getOrSet(`stopped:${time}`, () => 'at once')).toBe('at once');
        }
      } finally {
        server.process.resume();
      }
      await eventually(async () => (await app.cache.get('stopped')) === 'stored', { within: 3_000 });
      expect(app.cache.stats().breakerOpened).toBe(1);
    });

    it('and started again, without its data and scripts, is used as before', async () => {
      let mortal = await startRedisServer();
      await using app = await openCache({ redis: mortal.url, cache: { ...OPTIONS, l1: false } });
      await app.cache.getOrSet('restarted', () => 1);
      await mortal.process.kill();
      for (let time = 0; time < 20; time++) expect(await app.cache.getOrSet('restarted', () => 2)).toBe(2);
      mortal = await startRedisServer({ port: mortal.port });
      await eventually(
        async () => (await app.cache.getOrSet('restarted', () => 3)) && (await app.cache.get('restarted')),
        { within: 8_000 },
      );
      expect(await app.cache.getOrSet('restarted', () => 4)).toBe(3);
      await mortal.stop();
    });
  });

  describe('an invalidation while Redis is away', () => {
    const invalidations: Record<string, (cache: CacheService, keys: string[]) => Promise<unknown>> = {
      invalidate: (cache, keys) => cache.invalidate(keys),
      mutate: (cache, keys) => cache.mutate(keys, async () => {}),
      set: (cache, keys) => cache.mset(Object.fromEntries(keys.map((key) => [key, 'new']))),
      deleteByTag: (cache) => cache.deleteByTag('outage'),
      deleteByPrefix: (cache, keys) => cache.deleteByPrefix(keys[0]!.slice(0, -1)),
    };

    it.each(Object.keys(invalidations))('is repeated until it is done: none of many is lost (%s)', async (name) => {
      await using apart = await behindProxy();
      const keys = Array.from({ length: 200 }, (_, index) => `${name}:${index}`);
      await direct.cache.getOrSetMany(keys, async () => keys.map(() => 'old'), { tags: ['outage'] });
      apart.proxy.hold();
      await invalidations[name]!(apart.cache, keys);
      apart.proxy.reset();
      apart.proxy.heal();
      // From now on Redis can be reached, and still has the old values for a while: they are not read here.
      await eventually(async () => {
      const values = await Promise.all(keys.map((key) => apart.cache.getOrSet(key, () => 'new')));
      expect(new Set(values)).toEqual(new Set(['new']));
      return apart.cache.stats().unconfirmedInvalidations === 0;
    }, { within: 8_000 }); // prettier-ignore
      await eventually(async () => {
        const values = await Promise.all(keys.map((key) => direct.cache.getOrSet(key, () => 'new')));
        return values.every((value) => value === 'new');
      });
    });

    it('is repeated if only its answer was lost', async () => {
      await using apart = await behindProxy();
      await direct.cache.getOrSet('lost', () => 'old');
      await apart.cache.invalidate('warm');
      const sprung = apart.proxy.lose('lost', true);
      await apart.cache.invalidate('lost');
      await sprung;
      expect(await apart.cache.getOrSet('lost', () => 'new')).toBe('new');
      await eventually(() => apart.cache.stats().unconfirmedInvalidations === 0, { within: 5_000 });
      await eventually(async () => (await direct.cache.getOrSet('lost', () => 'new')) === 'new');
    });

    it('that could not be carried out before the shutdown is named in the log, and does not delay it', async () => {
      await using apart = await behindProxy();
      apart.proxy.hold();
      await apart.cache.invalidate('never');
      const reading = apart.cache.getOrSet('reading', loaded);
      await apart.app.close();
      expect(await reading).toBe('loaded');
      expect(
        apart.app.logger.matching(/Redis never confirmed 1 deletions, including the invalidation of "never"/),
      ).toHaveLength(1);
    });
  });
});

const CALLS: [what: string, call: (store: CacheStore) => PromiseLike<unknown>, command: string][] = [
  ['a deletion by prefix', (store) => store.deleteMatching({ match: { prefix: '' }, batch: 10 }), 'scan'],
  [
    'a value that is stored in time or not at all',
    (store) =>
      new Promise((resolve, reject) => {
        store.set({ key: 'key', data: 'value', ttl: 60_000, within: 60_000 }).then(resolve, reject);
      }),
    'time',
  ],
];

it.each(CALLS)('%s fails while Redis is away, and is not carried out later', async (_what, call, command) => {
  const first = await startRedisServer();
  const client = new Redis(first.url, { maxRetriesPerRequest: null, retryStrategy: () => 20 });
  client.on('error', () => {});
  await client.ping();
  const store = openRedisCacheStore(client, 'shop');
  await first.stop();
  await eventually(() => client.status !== 'ready');
  await expect(call(store)).rejects.toThrow(`Redis at 127.0.0.1:${first.port}`);
  await using second = await startRedisServer({ port: first.port });
  expect(await client.ping()).toBe('PONG');
  const admin = new Redis(second.url);
  expect(await admin.info('commandstats')).not.toContain(`cmdstat_${command}:`);
  admin.disconnect();
  store.close();
  client.disconnect();
});

describe('a double deletion', () => {
  let server: RedisServer;
  let proxy: FaultProxy;

  beforeAll(async () => {
    server = await startRedisServer();
    proxy = await FaultProxy.start(server.port);
  });
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  it('deletes by prefix although the process that wrote was killed during its write', async () => {
    await using other = await openCache({ redis: server.url });
    const child = Child.start('dies-in-double-deletion.mjs', [String(server.port), 'killed:', '3600000']);
    await child.says('writes');
    await child.kill();
    await other.cache.mset({ 'killed:1': 'old', 'killed:2': 'old', kept: 'new' }, { ttl: '2h' });
    const admin = new Redis(server.url);
    const [scheduled = ''] = await admin.zrange('cache-scheduled', '0', '-1');
    // It falls due now, rather than in an hour. A process that starts asks for what is due.
    expect(await admin.zadd('cache-scheduled', 'XX', 'CH', 1, scheduled)).toBe(1);
    admin.disconnect();
    await using late = await openCache({ redis: server.url });
    await eventually(async () =>
      (await late.cache.mget(['killed:1', 'killed:2'])).every((value) => value === undefined),
    );
    expect(await other.cache.get('kept')).toBe('new');
  });

  it('does not write if Redis is away and the deletion must not be missed, and writes otherwise', async () => {
    await using instance = await openCache({
      redis: { host: '127.0.0.1', port: proxy.port },
      cache: { commandTimeout: '200ms' },
    });
    const { cache, logger } = instance;
    await cache.set('away:1', 'old', { ttl: '1h' });
    proxy.hold();
    let writes = 0;
    const write = async () => (writes += 1);
    const strict = cache.doubleDeleteByPrefix('away:', write, { delay: 1, onRedisError: 'throw' });
    await expect(strict).rejects.toThrow(/deletion by prefix "away:" failed/);
    expect(writes).toBe(0);
    expect(await cache.doubleDeleteByPrefix('away:', write, { delay: 1 })).toBe(1);
    expect(logger.matching(/did not schedule the second deletion of prefix "away:"/)).toHaveLength(1);
    proxy.heal();
    await eventually(() => cache.stats().unconfirmedInvalidations === 0);
    expect(await cache.get('away:1')).toBeUndefined();
  });
});
