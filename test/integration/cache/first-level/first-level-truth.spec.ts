import 'reflect-metadata';
import { Redis } from 'ioredis';
import { FirstLevel } from '../../../../lib/cache/values/first-level.js';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { openCache, type CacheInstance } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { startRedis, bound, read } from '../../../support/one-redis.js';

startRedis();

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
    await eventually(() => engine.busConnected);
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
    await eventually(() => engine.busConnected);
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
    await eventually(() => engine.busConnected);
    await read(cache, 'k', 'old');
    await engine.stop();
    expect(await read(cache, 'k', 'new')).toBe('new');
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
      await eventually(() => one.engine.busConnected);
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
