import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheOperations } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import type { LocalState } from '../../lib/cache/invalidation/local-state.js';
import type { StepOrder } from '../../lib/cache/invalidation/step-order.js';
import { type Deletion, UnconfirmedDeletions } from '../../lib/cache/invalidation/unconfirmed-deletions.js';
import type { CacheCounters } from '../../lib/cache/store/cache-stats.js';
import type { StoreCalls } from '../../lib/cache/store/store-calls.js';
import { Envelopes, NO_COMPRESSION, typedSerializer } from '../../lib/cache/values/envelope.js';
import type { UnkeptClasses } from '../../lib/cache/values/unkept-classes.js';
import { CacheBackendError } from '../../lib/errors/cache-errors.js';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { scriptedCache } from '../support/scripted-cache.js';

type Step = 'invalidate' | 'invalidateTag' | 'deleteMatching' | 'ping';

/** Refuses these steps until `allow` is called. */
function refuse(store: CacheStore, ...steps: Step[]): { allow(): void; allowAfterNext(): void } {
  const before = steps.map((step) => [step, store[step]] as const);
  let last = false;
  const allow = () => void Object.assign(store, Object.fromEntries(before));
  const refusal = () => {
    if (last) allow();
    return Promise.reject(new Error('refused'));
  };
  Object.assign(store, Object.fromEntries(steps.map((step) => [step, refusal])));
  return { allow, allowAfterNext: () => void (last = true) };
}

const THROW = { onRedisError: 'throw' } as const;

describe('what a refused deletion covers', () => {
  const deletions: Record<string, [Step, (cache: CacheOperations) => Promise<unknown>]> = {
    'of the key': ['invalidate', (cache) => cache.del('k', THROW)],
    'by tag': ['invalidateTag', (cache) => cache.deleteByTag('t', THROW)],
    'by prefix': ['deleteMatching', (cache) => cache.deleteByPrefix('', THROW)],
    'by pattern': ['deleteMatching', (cache) => cache.deleteByPattern('?', THROW)],
  };

  it.each(Object.keys(deletions))(
    'rejects reads that shall not do without Redis, and loads nothing: %s',
    async (name) => {
      const [step, deletion] = deletions[name]!;
      using scripted = scriptedCache();
      const { cache, store } = scripted;
      let loads = 0;
      const load = () => (loads += 1);
      await cache.set('k', 'old', { tags: ['t'] });
      await cache.set('other', 'kept');
      const refused = refuse(store, step);
      await expect(deletion(cache)).rejects.toBeInstanceOf(CacheBackendError);
      for (let time = 0; time < 3; time++) {
        await expect(cache.get('k', THROW)).rejects.toThrow(/has not confirmed/);
        await expect(cache.getOrSet('k', load, THROW)).rejects.toThrow(/has not confirmed/);
        await expect(cache.getOrSet('k', load, { ...THROW, tags: ['t'] })).rejects.toThrow(/has not confirmed/);
        await expect(cache.getOrSetMany(['k'], async () => [load()], THROW)).rejects.toThrow(/has not confirmed/);
        await expect(cache.has('k')).rejects.toBeInstanceOf(CacheBackendError);
      }
      expect(loads).toBe(0);
      expect(await cache.get('k')).toBeUndefined();
      expect(await cache.getOrSet('k', load)).toBe(1);
      if (name !== 'by prefix') expect(await cache.getOrSet('other', load, THROW)).toBe('kept');
      refused.allow();
      await eventually(() => cache.getOrSet('k', load, THROW).catch(() => 0));
      expect(await cache.has('k')).toBe(true);
    },
  );

  it('is remembered for 100,000 deletions, and those that follow are given up', () => {
    const given: string[] = [];
    const logger = { warn: () => {}, error: (line: string) => void given.push(line) };
    const silent = { whenBack: () => {} } as unknown as StoreCalls;
    const unconfirmed = new UnconfirmedDeletions(
      silent,
      {} as StepOrder,
      {} as CacheCounters,
      logger,
      {} as LocalState,
    );
    const others = Array.from({ length: 100_001 }, (_, index): Deletion => {
      const what = `invalidation of "${index}"`;
      return { what, operation: 'invalidate', name: what, key: String(index), send: () => new Promise<void>(() => {}) };
    });
    for (const deletion of others) unconfirmed.add(deletion);
    expect(unconfirmed.size).toBe(100_000);
    expect(given).toEqual([expect.stringMatching(/^The invalidation of "100000" is given up/)]);
  });

  it('is deleted before anything depends on it', async () => {
    using scripted = scriptedCache();
    const { cache, store } = scripted;
    for (const key of ['n', 'absent', 'there']) await cache.set(key, 100);
    const refused = refuse(store, 'invalidate');
    await cache.del(['n', 'absent', 'there']);
    await expect(cache.incr('n', { ttl: '1h' })).rejects.toBeInstanceOf(CacheBackendError);
    await expect(cache.ttl('there')).rejects.toBeInstanceOf(CacheBackendError);
    await expect(cache.expire('there', '1m')).rejects.toBeInstanceOf(CacheBackendError);
    expect(await cache.setIfAbsent('absent', 1)).toBe(false);
    refused.allow();
    expect(await Promise.all([cache.incr('n', { ttl: '1h' }), cache.incr('n', { ttl: '1h' })])).toEqual([1, 2]);
    expect(await cache.setIfAbsent('absent', 'mine')).toBe(true);
    expect(await cache.has('there')).toBe(false);
    expect(scripted.engine.stats().unconfirmedInvalidations).toBe(0);
    expect(await cache.mget(['n', 'absent'])).toEqual([2, 'mine']);
  });
});

it('a deletion that is confirmed does not drop the barrier of another one that is not', async () => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const refused = refuse(store, 'invalidate');
  await cache.invalidate('row', { barrier: '1m' });
  refused.allow();
  await cache.invalidate('row');
  await eventually(() => scripted.engine.stats().unconfirmedInvalidations === 0);
  await cache.getOrSet('row', () => 'of a replica that lags behind');
  expect(await cache.get('row')).toBeUndefined();
});

it('a deletion by pattern that is not confirmed covers what matches, and nothing else', async () => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const shop = cache.namespace('shop[1]');
  await shop.mset({ 'price:1': 'old', 'name:1': 'kept' });
  await cache.mset({ 'price:1': 'kept', plain: 'kept' });
  refuse(store, 'deleteMatching');
  await shop.deleteByPattern('price:*');
  expect(await shop.mget(['price:1', 'name:1'])).toEqual([undefined, 'kept']);
  expect(await cache.mget(['price:1', 'plain'])).toEqual(['kept', 'kept']);
});

it('a deletion that looks at every key is tried again as soon as the store is back', async () => {
  using scripted = scriptedCache({ breaker: { errors: 1, open: '1m' } });
  const { cache, store, engine } = scripted;
  const { ping } = store;
  let tries = 0;
  const { deleteMatching } = store;
  store.deleteMatching = (request) => {
    tries += 1;
    return deleteMatching.call(store, request);
  };
  await cache.set('k', 1);
  store.ping = () => Promise.reject(new Error('away'));
  await cache.deleteByPrefix('k');
  // By then it rests for longer than the store needs to be noticed.
  await sleep(1_500);
  expect([tries, engine.stats().unconfirmedInvalidations]).toEqual([0, 1]);
  store.ping = ping;
  const back = new Promise<void>((resolve) => engine.calls.whenBack(resolve));
  await back;
  await eventually(() => engine.stats().unconfirmedInvalidations === 0, { within: 1_000, every: 1 });
});

it('a deletion by prefix keeps what is set and counted while it runs, and deletes what was there before', async () => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const swept = new Gate();
  const { deleteMatching } = store;
  store.deleteMatching = async (request) => {
    await swept.opened;
    return deleteMatching.call(store, request);
  };
  await cache.set('p:old', 'old');
  await cache.set('p:count', 7);
  await cache.set('p:untouched', 'old');
  const deletion = cache.deleteByPrefix('p:');
  expect(await cache.setIfAbsent('p:new', 'first')).toBe(true);
  expect(await cache.setIfAbsent('p:new', 'second')).toBe(false);
  expect(await cache.setIfAbsent('p:old', 'first')).toBe(true);
  const add = () => cache.incr('p:count', { ttl: '1m' });
  expect(new Set(await Promise.all([add(), add(), add()]))).toEqual(new Set([1, 2, 3]));
  swept.open();
  await deletion;
  const values = await cache.mget(['p:new', 'p:old', 'p:count', 'p:untouched']);
  expect(values).toEqual(['first', 'first', 3, undefined]);
});

it('at the end of the application they are repeated until the store answers, even with an open breaker', async () => {
  const scripted = scriptedCache({ breaker: { errors: 1, open: '1m' } });
  const { cache, store, engine, logger } = scripted;
  const keys = Array.from({ length: 150 }, (_, index) => `k:${index}`);
  await cache.mset(Object.fromEntries(keys.map((key) => [key, 'old'])));
  const { read } = store;
  const refused = refuse(store, 'invalidate', 'deleteMatching', 'ping');
  await cache.del(keys);
  await cache.deleteByPrefix('p');
  expect([engine.calls.breaker.isOpen, engine.stats().unconfirmedInvalidations]).toEqual([true, 151]);
  const values = () => Promise.all(keys.map((key) => read.call(store, key)));
  refused.allowAfterNext();
  await engine.unconfirmed.stop();
  expect(new Set(await values())).toEqual(new Set([null]));
  expect(engine.stats().unconfirmedInvalidations).toBe(0);
  expect(logger.matching(/never confirmed/)).toEqual([]);
  await engine.stop();
});

it('at the end of the application nothing is logged where the last one is confirmed in the last moment', async () => {
  const { cache, store, engine, logger } = scriptedCache({ commandTimeout: '5s' });
  const { invalidate } = store;
  refuse(store, 'invalidate');
  await cache.del('k');
  expect(engine.stats().unconfirmedInvalidations).toBe(1);
  // Between the last look at what is pending and the end.
  store.invalidate = async (request) => (await sleep(512), invalidate.call(store, request));
  await engine.unconfirmed.stop();
  expect(logger.matching(/never confirmed 0/)).toEqual([]);
});

it('at the end of the application they are not repeated for long where the store refuses them', async () => {
  const { cache, store, engine, logger } = scriptedCache();
  let sent = 0;
  store.invalidate = () => {
    sent += 1;
    return Promise.reject(new Error('refused'));
  };
  await cache.del('k');
  sent = 0;
  await engine.unconfirmed.stop();
  // Every 25 ms, for half a second.
  expect(sent).toBeLessThanOrEqual(21);
  expect(logger.matching(/never confirmed 1 deletions/)).toHaveLength(1);
  await engine.stop();
});

it.each(['throw', 'open'] as const)(
  "a load whose value could not be stored in time releases its lease: '%s'",
  async (onRedisError) => {
    using scripted = scriptedCache({ commandTimeout: 50, defaults: { onRedisError, lock: { lease: '10m' } } });
    const { cache, store } = scripted;
    store.commit = () => new Promise(() => {});
    const loading = cache.getOrSet('k', () => 'v1');
    if (onRedisError === 'open') expect(await loading).toBe('v1');
    else await expect(loading).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
    // It comes after the attempt to store.
    expect(await cache.get('k')).toBeUndefined();
    const wish = { key: 'k', token: 'next', lease: 1_000, refresh: false, seen: undefined, waits: false };
    expect(await store.lease(wish)).toMatchObject({ status: 'leased' });
  },
);

describe('what a caller learns to be out of date', () => {
  const refresh: Record<string, (cache: CacheOperations) => Promise<unknown>> = {
    'skip()': (cache) => cache.getOrSet('k', (context) => (context.skip(), 'new'), { forceFresh: true }),
    'setTtl(0)': (cache) => cache.getOrSet('k', (context) => (context.setTtl(0), 'new'), { forceFresh: true }),
    'null that is not kept': (cache) => cache.getOrSet('k', () => null, { forceFresh: true, nullTtl: 0 }),
    'a function': (cache) => cache.getOrSet('k', () => () => 1, { forceFresh: true }),
    'a batch loader that skips': (cache) =>
      cache.getOrSetMany(['k'], async (_, context) => (context.skip(), ['new']), { forceFresh: true }),
    'a refused value': (cache) => cache.set('k', Promise.resolve(1)).catch(() => {}),
    'a refused value among others': (cache) => cache.mset({ a: 1, k: () => 1 }).catch(() => {}),
  };

  it.each(Object.keys(refresh))('is deleted: %s', async (name) => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    await cache.set('k', 'old');
    await refresh[name]!(cache);
    expect(await cache.get('k')).toBeUndefined();
  });

  it('stays if the loader failed, or the value is only stored where there is none', async () => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    await cache.set('k', 'old');
    await cache.getOrSet('k', () => Promise.reject(new Error('away')), { forceFresh: true }).catch(() => {});
    await cache.setIfAbsent('k', Promise.resolve(1)).catch(() => {});
    expect(await cache.get('k')).toBe('old');
  });
});

describe('a caller who leaves', () => {
  it('does not take those who joined its load with it', async () => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    const leaving = new AbortController();
    const ofTheFirst = () =>
      new Promise<string>((_, reject) => {
        leaving.signal.addEventListener('abort', () => reject(leaving.signal.reason as Error));
      });
    const first = cache.getOrSet('k', ofTheFirst, { signal: leaving.signal });
    const others = [
      cache.getOrSet('k', () => 'loaded', { signal: new AbortController().signal }),
      cache.getOrSet('k', () => 'loaded'),
      cache.getOrSetMany(['k'], async () => ['loaded']).then(([value]) => value),
    ];
    await Promise.resolve();
    leaving.abort(new Error('left'));
    await expect(first).rejects.toThrow('left');
    expect(await Promise.all(others)).toEqual(['loaded', 'loaded', 'loaded']);
  });
});

describe('a batch loader', () => {
  it.each([
    ['ids', [1, 2], /"?1"? \(number\).*without "row:1"/],
    ['keys without their beginning', ['1', '2'], /the key "1".*without "row:1"/],
  ])('fails if its Map goes by other keys: %s', async (_, keys, message) => {
    using scripted = scriptedCache();
    const map = new Map<unknown, string>(keys.map((key) => [key, 'row'])) as Map<string, string>;
    await expect(scripted.cache.getOrSetMany(['row:1', 'row:2'], async () => map)).rejects.toThrow(message);
    expect(await scripted.cache.getOrSet('row:1', () => 'there')).toBe('there');
  });
});

describe('namespaces', () => {
  it('have no name that reaches into another', async () => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    await cache.namespace('a').set('b:x', 1);
    await cache.namespace('a').namespace('b').set('x', 2);
    await cache.namespace('a:b').set('x', 3);
    await cache.namespace('a%3Ab').set('x', 4);
    await cache.namespace('a').deleteByPrefix('');
    expect(await cache.namespace('a:b').get('x')).toBe(3);
    expect(await cache.namespace('a%3Ab').get('x')).toBe(4);
  });
});

describe('ttl: Infinity', () => {
  it('keeps a value for ever', async () => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    await cache.set('a', { x: 1 }, { ttl: Infinity, tags: ['t'] });
    await cache.getOrSet('b', () => ({ x: 2 }), { ttl: Infinity, staleTtl: '1m', refreshAhead: true });
    await cache.getOrSet('c', (context) => (context.setTtl(Infinity), 'c'));
    expect(await Promise.all(['a', 'b', 'c'].map((key) => cache.ttl(key)))).toEqual([Infinity, Infinity, Infinity]);
    expect(await cache.get('a')).toEqual({ x: 1 });
    expect(await cache.inspect('a')).toMatchObject({ state: 'fresh', freshFor: Infinity, keptFor: Infinity });
  });

  it('is the remedy for 0, in an error that names the call and its key', async () => {
    using scripted = scriptedCache();
    await expect(scripted.cache.set('k', 1, { ttl: 0 })).rejects.toThrow(/^"set" of "k": .*Infinity/);
  });
});

describe('the envelope', () => {
  const envelopes = new Envelopes(typedSerializer(), NO_COMPRESSION, Infinity, {} as UnkeptClasses);
  const six = 36 ** 6;
  const times = [
    0,
    1,
    1_295,
    six - 1,
    six,
    36 * six - 1,
    36 * six,
    36 * six + 1,
    1_296 * six - 1,
    1_296 * six,
    8.64e15,
  ];
  const recent = Array.from({ length: 1_000 }, (_, index) => Date.UTC(2026, 0) + index * 86_399_999);

  it('has the end of freshness in base 36, whenever that is', async () => {
    for (const expiresAt of [...times, ...recent]) {
      const mark = { expiresAt, keptStale: false, loadTime: undefined, ttl: undefined, tags: undefined };
      const data = Buffer.from(await envelopes.seal({ payload: '1' }, mark));
      expect(data.toString()).toBe(`\u0001@${expiresAt.toString(36)}\n1`);
      expect(envelopes.open(data)?.expiresAt).toBe(expiresAt);
    }
  });
});
