import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { CacheEvict, CacheKeyError, CachePut, type CacheOperations } from 'nest-redis-lock';
import { FirstLevel } from '../../../lib/cache/first-level/first-level.js';
import { openRedisCacheStore } from '../../../lib/backends/redis/cache/redis-cache-store.js';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { cacheApp } from '../../support/cache-app.js';
import { hears, openCache, type CacheInstance } from '../../support/cache-instance.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startRedisCluster } from '../../support/servers/redis-cluster.js';
import { scriptedCache } from '../../support/scripted-cache.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

const away = () => Promise.reject(new Error('Redis is away'));
/** A method that has the object itself as `this`, whatever it is called on. */
const bound = (target: object, name: PropertyKey): unknown => (Reflect.get(target, name) as () => void).bind(target);
const read = (cache: CacheOperations, key: string, value: string) => cache.getOrSet(key, () => value, { jitter: 0 });

describe('An invalidation that Redis does not confirm', () => {
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
    await eventually(() => engine.hears);
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
    using scripted = scriptedCache({ commandTimeout: '5s' });
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

  it('is told of when the application ends meanwhile', async () => {
    const { cache, engine, store, logger } = scriptedCache();
    store.invalidate = () => new Promise(() => {});
    const invalidated = cache.invalidate('k');
    await engine.stop();
    await invalidated;
    expect(logger.matching(/never confirmed|given up/)).toHaveLength(1);
  });
});

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

describe('The first level', () => {
  it('is not asked by get where reads are strong', async () => {
    const store = memoryCacheStore();
    const listen = store.listen.bind(store);
    store.listen = (listener) => {
      const onInvalidated = () => {};
      listen(
        new Proxy(listener, {
          get: (target, name) => (name === 'onInvalidated' ? onInvalidated : bound(target, name)),
        }),
      );
    };
    using scripted = scriptedCache({ l1: {}, defaults: { consistency: 'strong' } }, store);
    const { cache, engine } = scripted;
    await eventually(() => engine.hears);
    await read(cache, 'k', 'old');
    await store.invalidate({ key: 'k' });
    expect(await cache.get('k')).toBeUndefined();
  });

  it.each([true, false])('counts what cannot be read back as absent (serialize: %s)', async (serialize) => {
    const serializer = {
      serialize: (value: unknown) => JSON.stringify(value),
      deserialize: () => {
        throw new Error('cannot be read');
      },
    };
    using scripted = scriptedCache({ serializer, l1: { serialize } });
    const { cache, engine } = scripted;
    await eventually(() => engine.hears);
    expect(await read(cache, 'k', 'one')).toBe('one');
    expect(await read(cache, 'k', 'two')).toBe('two');
    expect(await cache.get('k')).toBeUndefined();
  });

  it('remembers no tags of what is too large for it', () => {
    const level = new FirstLevel(
      { max: 10, maxBytes: 1_000, ttl: 10_000, serialize: true, whileAway: 0, bus: 'pubsub' as const },
      () => undefined,
    );
    level.trust('messages');
    for (let index = 0; index < 5; index++) {
      level.keep(`k${index}`, {
        kind: 0,
        expiresAt: Date.now() + 10_000,
        keptStale: false,
        loadTime: undefined,
        tags: { t: 1 },
        payload: Buffer.alloc(2_000),
      });
    }
    expect((level as unknown as { keysByTag: Map<string, unknown> }).keysByTag.size).toBe(0);
  });

  it('is not used once the application has ended', async () => {
    const { cache, engine } = scriptedCache({ l1: {} });
    await eventually(() => engine.hears);
    await read(cache, 'k', 'old');
    await engine.stop();
    expect(await read(cache, 'k', 'new')).toBe('new');
  });
});

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

it('setIfAbsent of a null that is not kept deletes nothing', async () => {
  using scripted = scriptedCache();
  await scripted.cache.set('k', 'there');
  expect(await scripted.cache.setIfAbsent('k', null, { nullTtl: 0 })).toBe(false);
  expect(await scripted.cache.get('k')).toBe('there');
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

describe('Thousands of keys in one call', () => {
  it('are written and read although that takes longer than one command may', async () => {
    await using instance = await openCache({ redis: server.url, prefix: 'many' });
    const keys = Array.from({ length: 30_000 }, (_, index) => `k${index}`);
    await instance.cache.mset(new Map(keys.map((key) => [key, { key }])), { onRedisError: 'throw' });
    expect((await instance.cache.mget(keys)).filter((value) => value === undefined)).toEqual([]);
    expect(instance.cache.stats()).toMatchObject({ breakerOpened: 0, redisErrors: 0 });
  });
});

it('On a Cluster, the first level has nothing old after its connection for messages was cut', async () => {
  const cluster = await startRedisCluster();
  const clients = [cluster.client(), cluster.client()] as const;
  const admins = cluster.servers.map(({ url }) => new Redis(url));
  const [one, two] = (await Promise.all(
    clients.map((redis) => openCache({ redis, cache: { l1: { ttl: '60s' } } })),
  )) as [CacheInstance, CacheInstance];
  try {
    for (const key of ['a', 'b', 'c']) {
      await eventually(() => hears(one.cache));
      await read(one.cache, key, 'old');
      const { firstLevelFlushes } = one.cache.stats();
      await Promise.all(admins.map((admin) => admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub')));
      await two.cache.invalidate(key);
      // Once for the loss, and once for the new connection.
      await eventually(() => one.cache.stats().firstLevelFlushes >= firstLevelFlushes + 2);
      expect(await read(one.cache, key, 'new')).toBe('new');
    }
  } finally {
    await Promise.all([one.close(), two.close()]);
    for (const client of [...clients, ...admins]) client.disconnect();
    await cluster.stop();
  }
});
