import 'reflect-metadata';
import { openCache } from '../../support/cache-instance.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { scriptedCache } from '../../support/scripted-cache.js';
import { startRedis, server } from '../../support/one-redis.js';

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
