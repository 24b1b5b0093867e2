import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheOperations, CacheService } from 'nest-redis-lock';
import { type CacheInstance, openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { away, read, server, startRedis } from '../../../support/one-redis.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('An invalidation that Redis does not confirm', () => {
  startRedis();

  it('is repeated for each of its keys, however many there are, also where it throws', async () => {
    using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
    const { cache, engine, store } = scripted;
    const keys = Array.from({ length: 1_200 }, (_, index) => `k${index}`);
    for (const key of keys) await cache.set(key, 'old');
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    await expect(cache.invalidate(keys, { onRedisError: 'throw' })).rejects.toThrow('Redis is away');
    expect(engine.unconfirmed.size).toBe(keys.length);
    store.invalidate = invalidate;
    await eventually(() => engine.unconfirmed.size === 0);
    expect((await cache.mget(keys)).filter((value) => value !== undefined)).toEqual([]);
  });

  it.each([
    ['of a key', 'invalidate', (cache: CacheOperations) => cache.invalidate('k', { onRedisError: 'throw' })],
    ['by a tag', 'invalidateTag', (cache: CacheOperations) => cache.deleteByTag('t', { onRedisError: 'throw' })],
    ['by a prefix', 'deleteMatching', (cache: CacheOperations) => cache.deleteByPrefix('k', { onRedisError: 'throw' })],
  ] as const)('leaves nothing in the first level that was read meanwhile: %s', async (_, step, invalidate) => {
    using scripted = scriptedCache({ l1: {}, breaker: { errors: 1_000_000 } });
    const { cache, engine, store } = scripted;
    await eventually(() => engine.busConnected);
    const load = (value: string) => cache.getOrSet('k', () => value, { tags: ['t'] });
    await load('old');
    const gate = new Gate();
    Object.assign(store, { [step]: () => gate.opened.then(away) });
    const invalidated = invalidate(cache);
    // Where it asks for what the deletion covers, it waits until that has ended.
    const meanwhile = load('new');
    gate.open();
    await expect(invalidated).rejects.toThrow('Redis is away');
    expect(await meanwhile).toBe(step === 'deleteMatching' ? 'old' : 'new');
    expect(await load('new')).toBe('new');
  });

  it('that Redis refuses again and again does not keep back the others', async () => {
    using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
    const { cache, engine, store } = scripted;
    const keys = Array.from({ length: 200 }, (_, index) => `k${index}`);
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    await cache.invalidate(keys);
    store.invalidate = (request) => (Number(request.key.slice(1)) < 64 ? away() : invalidate(request));
    await eventually(() => engine.unconfirmed.size === 64);
  });

  it('by a prefix, which takes long, does not keep back the others', async () => {
    using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
    const { cache, engine, store } = scripted;
    const keys = Array.from({ length: 200 }, (_, index) => `k${index}`);
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    store.deleteMatching = away;
    await cache.deleteByPrefix('p');
    await cache.invalidate(keys);
    const gate = new Gate();
    store.deleteMatching = () => gate.opened.then(() => 0);
    store.invalidate = invalidate;
    await eventually(() => engine.unconfirmed.size === 1);
    gate.open();
    await eventually(() => engine.unconfirmed.size === 0);
  });

  it('is not taken for confirmed by what was sent before it', async () => {
    using scripted = scriptedCache({ commandTimeout: 500 });
    const { cache, engine, store } = scripted;
    const set = store.set.bind(store);
    const gate = new Gate();
    store.set = async (request) => {
      const stored = await set(request);
      await gate.opened;
      return stored;
    };
    const written = cache.set('k', 'old');
    await eventually(() => store.read('k') as Promise<Buffer | null>);
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    await cache.invalidate('k');
    gate.open();
    await written;
    expect(await read(cache, 'k', 'new')).toBe('new');
    store.invalidate = invalidate;
    await eventually(() => engine.unconfirmed.size === 0);
    expect(await store.read('k')).toBeNull();
  });

  it('that began a barrier is not repeated once the write has ended', async () => {
    using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
    const { cache, engine, store } = scripted;
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    const others = Array.from({ length: 64 }, (_, index) => `other${index}`);
    await cache.invalidate(others);
    const gate = new Gate();
    const sent = new Gate();
    const write = new Gate();
    const mutated = cache.mutate('k', () => write.opened);
    await eventually(() => engine.unconfirmed.size === 65);
    // The others are under way, and that of the barrier is next.
    store.invalidate = async (request) => {
      sent.open();
      await gate.opened;
      return invalidate(request);
    };
    await sent.opened;
    store.invalidate = invalidate;
    write.open();
    await mutated;
    gate.open();
    await eventually(() => engine.unconfirmed.size === 0);
    await sleep(50);
    await read(cache, 'k', 'new');
    expect(await store.read('k')).not.toBeNull();
  });

  it('is logged when the application ends meanwhile', async () => {
    const { cache, engine, store, logger } = scriptedCache();
    store.invalidate = () => new Promise(() => {});
    const invalidated = cache.invalidate('k');
    await engine.stop();
    await invalidated;
    expect(logger.matching(/never confirmed|given up/)).toHaveLength(1);
  });
});

describe('a write whose caller has gone', () => {
  startRedis();

  describe('What is written late', () => {
    it('by a set that was given up is deleted again', async () => {
      using scripted = scriptedCache({ commandTimeout: 50, breaker: { errors: 1_000_000 } });
      const { cache, engine, store } = scripted;
      const set = store.set.bind(store);
      const gate = new Gate();
      store.set = async (request) => {
        await gate.opened;
        return set(request);
      };
      await cache.set('k', 'old');
      await eventually(() => engine.unconfirmed.size === 0);
      gate.open();
      await eventually(() => engine.counters.repeatedInvalidations === 2);
      expect(await cache.get('k')).toBeUndefined();
    });

    it('by a setIfAbsent that was given up is deleted, and what others wrote is not', async () => {
      using scripted = scriptedCache({ commandTimeout: 50, breaker: { errors: 1_000_000 } });
      const { cache, store, engine } = scripted;
      const set = store.set.bind(store);
      const gate = new Gate();
      store.set = async (request) => {
        await gate.opened;
        return set(request);
      };
      await cache.setIfAbsent('a', 'old');
      await cache.setIfAbsent('b', 'old');
      await set({ key: 'b', data: '7', ttl: 10_000 });
      gate.open();
      await eventually(() => engine.counters.repeatedInvalidations === 1);
      expect(await cache.mget(['a', 'b'])).toEqual([undefined, 7]);
    });
  });

  it('setIfAbsent of a null that is not kept deletes nothing', async () => {
    using scripted = scriptedCache();
    await scripted.cache.set('k', 'there');
    expect(await scripted.cache.setIfAbsent('k', null, { nullTtl: 0 })).toBe(false);
    expect(await scripted.cache.get('k')).toBe('there');
  });

  describe('Thousands of keys in one call', () => {
    it('are written and read although that takes longer than one command may', async () => {
      await using instance = await openCache({ redis: server.url, prefix: 'many' });
      const keys = Array.from({ length: 30_000 }, (_, index) => `k${index}`);
      await instance.cache.mset(new Map(keys.map((key) => [key, { key }])), { onRedisError: 'throw' });
      expect((await instance.cache.mget(keys)).filter((value) => value === undefined)).toEqual([]);
      expect(instance.cache.stats()).toMatchObject({ breakerOpened: 0, redisErrors: 0 });
    });
  });
});

describe('a set that comes late', () => {
  let redisServer: RedisServer;
  let redis: Redis;
  let other: CacheInstance;

  beforeAll(async () => {
    redisServer = await startRedisServer();
    redis = new Redis(redisServer.url);
    other = await openCache({ redis: redisServer.url, cache: {} });
  });
  afterAll(async () => {
    await other.close();
    redis.disconnect();
    await redisServer.stop();
  });

  const STRONG = { consistency: 'strong', onRedisError: 'throw' } as const;
  const writes: Record<string, (cache: CacheService) => Promise<unknown>> = {
    set: (cache) => cache.set('row', 'v1'),
    'set with a tag': (cache) => cache.set('row', 'v1', { tags: ['rows'] }),
    setIfAbsent: (cache) => cache.setIfAbsent('row', 'v1'),
    mset: (cache) => cache.mset({ row: 'v1' }),
  };

  it.concurrent.each(Object.keys(writes))(
    'what the network delivers after its call has ended stores nothing: %s',
    async (name) => {
      const proxy = await FaultProxy.start(redisServer.port);
      const redisOfApp = { host: '127.0.0.1', port: proxy.port };
      const app = await openCache({ redis: redisOfApp, prefix: name, cache: { commandTimeout: '2s' } });
      const peer = await openCache({ redis: redisServer.url, prefix: name, cache: {} });
      await app.cache.set('before', 1, { tags: ['rows'], onRedisError: 'throw' });
      proxy.hold();
      await writes[name]!(app.cache);
      await peer.cache.invalidate('row', { onRedisError: 'throw' });
      // What had been sent is delivered; what is said to it is lost, and nothing that the application does later
      // arrives.
      proxy.heal();
      proxy.silence();
      await eventually(async () => (await redis.exists(`${name}:cache:row`)) === 1, { within: 150 }).catch(() => {});
      expect(await peer.cache.getOrSet('row', () => 'v2', STRONG)).toBe('v2');
      await Promise.all([app.close(), peer.close()]);
      await proxy.stop();
    },
  );

  it('a call that failed early does not end before it is sure that nothing more is stored', async () => {
    const proxy = await FaultProxy.start(redisServer.port);
    const cache = { breaker: { errors: 1, open: 5_000 }, commandTimeout: 300 };
    const app = await openCache({ redis: { host: '127.0.0.1', port: proxy.port }, cache });
    await app.cache.set('before', 1);
    proxy.hold();
    const reading = app.cache.get('before');
    await sleep(150);
    const begun = performance.now();
    await app.cache.set('row', 'v1');
    expect(performance.now() - begun).toBeGreaterThan(280);
    await reading;
    proxy.heal();
    await app.close();
    await proxy.stop();
  });

  it('a set is stored on each node of a Cluster', async () => {
    const keys = Array.from({ length: 30 }, (_, index) => `k:${index}`);
    const cluster = await startRedisCluster();
    const client = cluster.client();
    const app = await openCache({ redis: client, cache: { commandTimeout: '30s' } });
    await Promise.all(keys.map((key) => app.cache.set(key, key, { onRedisError: 'throw' })));
    expect(await app.cache.mget(keys)).toEqual(keys);
    await app.close();
    client.disconnect();
    await cluster.stop();
  });

  it('a set is stored also where the clock of the server was set forward since it was read', async () => {
    const client = new Redis(redisServer.url);
    await using _ = { [Symbol.asyncDispose]: async () => client.disconnect() };
    let readings = 0;
    // What is left of a reading from before: all later ones are right.
    const time = async (): Promise<number[]> => {
      readings += 1;
      const [seconds, micros] = await redis.time();
      return [Number(seconds) - (readings === 1 ? 60 : 0), Number(micros)];
    };
    await using app = await openCache({ redis: Object.assign(client, { time }), cache: { commandTimeout: '2s' } });
    for (const value of ['first', 'second']) {
      await app.cache.set('forward', value, { onRedisError: 'throw' });
      expect(await app.cache.get('forward')).toBe(value);
    }
    expect(readings).toBe(2);
  });

  it('a set under a barrier stores nothing', async () => {
    await other.cache.set('row', 'before');
    await other.cache.invalidate('row', { barrier: '1m' });
    await other.cache.set('row', 'v1', { onRedisError: 'throw' });
    expect(await other.cache.setIfAbsent('row', 'v1')).toBe(false);
    expect(await redis.exists('cache:row')).toBe(0);
    await redis.del('barrier:{cache:row}');
    await other.cache.set('row', 'v2');
    expect(await other.cache.get('row')).toBe('v2');
  });
});

describe('what is remembered of a tag', () => {
  let redisServer: RedisServer;
  let plain: Redis;

  beforeAll(async () => {
    redisServer = await startRedisServer();
    plain = new Redis(redisServer.url);
  });
  afterAll(async () => {
    plain.disconnect();
    await redisServer.stop();
  });

  const HOUR = 3_600_000;

  it('tags of no value are remembered briefly, other tags and the last invalidation for long', async () => {
    await using instance = await openCache({ redis: redisServer.url });
    const { cache } = instance;
    await cache.set('k', 'v', { tags: ['used'] });
    await cache.deleteByTag(['used', 'unused']);
    await cache.expireByTag('soft');
    const left = (key: string) => plain.pttl(key);
    for (const tag of ['unused', 'soft']) {
      expect(await left(`cache-tag:${tag}`)).toBeGreaterThan(HOUR / 12);
      expect(await left(`cache-tag:${tag}`)).toBeLessThan(HOUR);
    }
    expect(await left('cache-tag:used')).toBeGreaterThan(23 * HOUR);
    expect(await left('cache-tags')).toBeGreaterThan(23 * HOUR);
  });

  it('a load whose tag was deleted meanwhile stores nothing, also where that is forgotten', async () => {
    await using instance = await openCache({ redis: redisServer.url });
    const { cache } = instance;
    const [begun, gate] = [new Gate(), new Gate()];
    const slow = cache.getOrSet('slow', async ({ setTags }) => {
      begun.open();
      await gate.opened;
      setTags(['forgotten']);
      return 'read before';
    });
    await begun.opened;
    await cache.deleteByTag('forgotten');
    expect(await plain.del('cache-tag:forgotten')).toBe(1);
    gate.open();
    expect(await slow).toBe('read before');
    expect(await cache.has('slow')).toBe(false);
  });
});
