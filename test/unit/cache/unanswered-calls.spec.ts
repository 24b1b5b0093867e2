import { jest } from '@jest/globals';
import type { CacheStore } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { CacheBackendError } from '../../../lib/errors/cache-errors.js';
import { CACHE_CALLS, LOADER, loaded, THROWING } from '../../support/cache-calls.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { Gate } from '../../support/gate.js';
import { scriptedCache } from '../../support/scripted-cache.js';

/** How long each call takes whose store answers nothing, on a clock that only the test drives. */

const COMMAND_TIMEOUT = 100;
/** A write waits for Redis twice: before and after it. */
const MOST = 2 * COMMAND_TIMEOUT + LOADER;

const clock = new DrivenClock();
beforeEach(() => clock.start());
afterEach(() => clock.stop());

function silentStore(): CacheStore {
  return new Proxy(memoryCacheStore(), {
    get: (store, name) => {
      const member = Reflect.get(store, name) as unknown;
      return typeof member === 'function' ? () => new Promise(() => {}) : member;
    },
  });
}

const unanswered = () =>
  scriptedCache({ commandTimeout: COMMAND_TIMEOUT, l1: {}, breaker: { open: '2s' } }, silentStore());

async function timed<T>(call: Promise<T>): Promise<{ value: T; took: number }> {
  const begun = performance.now();
  return { value: await call, took: performance.now() - begun };
}

const settled = <T>(call: Promise<T>) => clock.settle(timed(call));

it.each(Object.entries(CACHE_CALLS))('%s answers in time', async (_, [call, answer]) => {
  using scripted = unanswered();
  const { value, took } = await settled(call(scripted.cache));
  expect(value).toEqual(answer);
  expect(took).toBeLessThanOrEqual(MOST);
});

it.each(Object.entries(THROWING))('%s that may fail does so in time', async (_, call) => {
  using scripted = unanswered();
  const { value, took } = await settled(call(scripted.cache).catch((error: unknown) => error));
  expect(value).toBeInstanceOf(CacheBackendError);
  expect(took).toBeLessThanOrEqual(MOST);
});

it('reads of one key that come one after the other wait for one load more at most', async () => {
  using scripted = unanswered();
  let loads = 0;
  const load = () => {
    loads += 1;
    return loaded();
  };
  const reads: Promise<{ took: number }>[] = [];
  for (let burst = 0; burst < 20; burst++) {
    for (let each = 0; each < 20; each++) reads.push(timed(scripted.cache.getOrSet('hot', load)));
    await clock.pass(10);
  }
  const slowest = Math.max(...(await clock.settle(Promise.all(reads))).map(({ took }) => took));
  expect(loads).toBeLessThan(20);
  expect(slowest).toBeLessThanOrEqual(2 * (COMMAND_TIMEOUT + LOADER));
});

it('only the first call waits for the store: the others know that it is away', async () => {
  using scripted = unanswered();
  const { cache, engine } = scripted;
  expect((await settled(cache.getOrSet('first', loaded))).took).toBeLessThanOrEqual(COMMAND_TIMEOUT + LOADER);
  expect(engine.stats().breakerOpened).toBe(1);
  for (let time = 0; time < 5; time++) {
    expect((await settled(cache.getOrSet(`next:${time}`, () => 'at once'))).took).toBe(0);
  }
});

describe('a request for a load lease that fails, and is carried out', () => {
  const CASES = [
    ['after a read', { expect: 'hit' }],
    ['instead of a read', { expect: 'miss' }],
    ['of a value with tags', { expect: 'hit', tags: ['a'] }],
    ['instead of a read, of a value with tags', { expect: 'miss', tags: ['a'] }],
  ] as const;

  /** The connection is lost with each request for a lease, which the store gets all the same after `delay` ms. */
  function losing(delay: number): CacheStore {
    const store = memoryCacheStore();
    const lost = <Request>(carryOut: (request: Request) => unknown) => {
      return (request: Request) => {
        if (delay === 0) carryOut(request);
        else setTimeout(() => carryOut(request), delay);
        return Promise.reject(new Error('Connection is closed'));
      };
    };
    store.lease = lost(store.lease.bind(store));
    store.readOrLease = lost(store.readOrLease!.bind(store));
    return store;
  }

  describe.each([
    ['before its release', 0],
    ['after its release', 300],
  ])('%s', (_, delay) => {
    it.each(CASES)('keeps no other caller from loading: %s', async (__, options) => {
      using scripted = scriptedCache({}, losing(delay));
      const { cache, store } = scripted;
      expect(await clock.settle(cache.getOrSet('k', () => 'loaded', options))).toBe('loaded');
      if (delay > 0) {
        await clock.pass(delay);
        expect((await store.inspect('k')).lease).not.toBeNull();
        await clock.pass(1_000);
      }
      await clock.pass(50);
      expect((await store.inspect('k')).lease).toBeNull();
    });
  });

  it('is released again where the first releases fail', async () => {
    const store = losing(300);
    const release = store.release.bind(store);
    let failures = 3;
    store.release = (request) =>
      failures-- > 0 ? Promise.reject(new Error('Connection is closed')) : release(request);
    using scripted = scriptedCache({ breaker: { errors: 10 } }, store);
    await clock.settle(scripted.cache.getOrSet('k', () => 'loaded', { expect: 'miss' }));
    await clock.pass(3_200);
    expect((await store.inspect('k')).lease).toBeNull();
    expect(failures).toBeLessThan(0);
  });

  it('is not released any more once the application has ended', async () => {
    const store = losing(0);
    let releases = 0;
    store.release = () => {
      releases += 1;
      return Promise.reject(new Error('Connection is closed'));
    };
    {
      using scripted = scriptedCache({ breaker: { errors: 10 } }, store);
      await clock.settle(scripted.cache.getOrSet('k', () => 'loaded', { expect: 'miss' }));
      await clock.pass(1_050);
      expect(releases).toBe(2);
    }
    await clock.pass(70_000);
    expect(releases).toBe(2);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('while the store is away is released when it is back', async () => {
    const store = losing(8_000);
    const back = new Gate();
    store.ping = () => back.opened;
    store.read = () => back.opened.then(() => null);
    using scripted = scriptedCache({ breaker: { open: '20s' } }, store);
    const { cache, engine } = scripted;
    await clock.settle(cache.getOrSet('k', () => 'loaded', { expect: 'miss' }));
    await clock.settle(cache.getOrSet('another', () => 'loaded'));
    expect(engine.stats().breakerOpened).toBe(1);
    await clock.pass(8_000);
    expect((await store.inspect('k')).lease).not.toBeNull();
    back.open();
    await clock.pass(1_500);
    expect((await store.inspect('k')).lease).toBeNull();
  });
});
