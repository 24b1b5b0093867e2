import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CacheOperations } from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { scriptedCache } from '../../support/scripted-cache.js';
import { startRedis, away, read } from '../../support/one-redis.js';

startRedis();

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

  it('is logged when the application ends meanwhile', async () => {
    const { cache, engine, store, logger } = scriptedCache();
    store.invalidate = () => new Promise(() => {});
    const invalidated = cache.invalidate('k');
    await engine.stop();
    await invalidated;
    expect(logger.matching(/never confirmed|given up/)).toHaveLength(1);
  });
});
