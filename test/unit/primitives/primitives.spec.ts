import { setTimeout as sleep } from 'node:timers/promises';
import type { Lock, LockBackend, LockService } from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
import { MemoryRateLimitStore } from '../../../lib/backends/memory/memory-primitives.js';
import type { LatchListener, PrimitiveStoreProvider } from '../../../lib/contracts/primitive-stores.js';
import { IdempotencyService } from '../../../lib/primitives/idempotency/idempotency.service.js';
import { CountDownLatch } from '../../../lib/primitives/latch/count-down-latch.js';
import { StandingCandidacy } from '../../../lib/primitives/leader/standing-candidacy.js';
import { LocalShares } from '../../../lib/primitives/rate-limit/local-shares.js';
import type { RateLimitCounts, Taken } from '../../../lib/primitives/rate-limit/rate-limit-counts.js';
import { rateLimitSettings } from '../../../lib/primitives/rate-limit/rate-limit-options.js';
import { RateLimiter } from '../../../lib/primitives/rate-limit/rate-limiter.js';
import { PrimitiveRuntime } from '../../../lib/primitives/runtime.js';
import { SemaphoreService } from '../../../lib/primitives/semaphore/semaphore.service.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { semaphoresWith, startLockServices } from '../../support/lock-services.js';
import { bare } from '../../support/open-backend.js';

describe('a call for a permit', () => {
  const clock = new DrivenClock();
  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  it.each([0, 300])(
    'ends a call one commandTimeout after its wait of %i ms, also where its grant is renewed first',
    async (wait) => {
      const late = async <T>(answer: T): Promise<T> => {
        await new Promise((resolve) => setTimeout(resolve, 700));
        return answer;
      };
      const released: string[] = [];
      await using app = await semaphoresWith(
        (inner) => ({
          acquire: async (request) => {
            const answer = await late(await inner.acquire(request));
            return answer.status === 'granted' ? { ...answer, remaining: 100 } : answer;
          },
          renew: async (request) => late(await inner.renew(request)),
          release: (request) => {
            released.push(request.ticket);
            return inner.release(request);
          },
        }),
        { commandTimeout: 1_000 },
      );
      const began = performance.now();
      const call = app.semaphores.acquire('late', { permits: 1, wait });
      await expect(clock.settle(call)).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
      expect(performance.now() - began).toBeLessThanOrEqual(wait + 1_000 + 10);
      await clock.eventually(() => released.length > 0);
      await clock.eventually(async () => (await app.semaphores.available('late', { permits: 1 })) === 1);
    },
  );
});

describe('a call that waits for a latch', () => {
  it('goes on waiting after a message about an earlier latch of the same name', async () => {
    const backend = memory() as LockBackend & PrimitiveStoreProvider;
    const inner = backend.openPrimitiveStores(undefined);
    const listeners: LatchListener[] = [];
    let looks = 0;
    const latches = {
      ...inner.latches,
      listen: (listener: LatchListener) => {
        listeners.push(listener);
        inner.latches.listen(listener);
      },
      look: async (name: string, process?: string) => {
        const state = await inner.latches.look(name, process);
        looks += 1;
        return state;
      },
    };
    backend.openPrimitiveStores = () => ({ ...inner, latches });
    await using app = await startLockServices({ backend });
    const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
    await latch.define('again', { count: 1, ttl: '1m' });
    let opened = false;
    const waiting = latch.await('again', { wait: '1m' }).then(() => (opened = true));
    await eventually(() => looks === 1);
    listeners[0]?.onOpen('again');
    await eventually(() => looks === 2);
    await new Promise(setImmediate);
    expect(opened).toBe(false);
    await latch.countDown('again');
    await waiting;
  });

  it('goes on with the message, and not when it would look again', async () => {
    const clock = new DrivenClock();
    clock.start();
    try {
      const backend = memory();
      const [here, elsewhere] = [await startLockServices({ backend }), await startLockServices({ backend })];
      const [one, two] = [here, elsewhere].map(({ backends }) => new CountDownLatch(new PrimitiveRuntime(backends)));
      await one?.define('heard', { count: 1, ttl: '1m' });
      const begun = performance.now();
      const waited = one?.await('heard', { wait: '1m' }).then(() => performance.now() - begun);
      await clock.pass(60);
      await two?.countDown('heard');
      expect(await clock.settle(waited as Promise<number>)).toBe(60);
      await clock.settle(Promise.all([here.close(), elsewhere.close()]));
    } finally {
      clock.stop();
    }
  });

  it('looks again where no message comes', async () => {
    const backend = memory() as LockBackend & PrimitiveStoreProvider;
    const inner = backend.openPrimitiveStores(undefined);
    backend.openPrimitiveStores = () => ({ ...inner, latches: { ...inner.latches, listen: () => {} } });
    await using here = await startLockServices({ backend });
    await using elsewhere = await startLockServices({ backend });
    const [one, two] = [here, elsewhere].map(({ backends }) => new CountDownLatch(new PrimitiveRuntime(backends)));
    await one?.define('unheard', { count: 1, ttl: '1m' });
    const waiting = one?.await('unheard', { wait: '1m' });
    await two?.countDown('unheard');
    await waiting;
  });

  it('does not refuse a call by the answer to a look that was sent before it', async () => {
    const backend = memory() as LockBackend & PrimitiveStoreProvider;
    const inner = backend.openPrimitiveStores(undefined);
    const answered = new Gate();
    let looks = 0;
    const latches = {
      ...inner.latches,
      listen: () => {},
      look: async (name: string, process?: string) => {
        looks += 1;
        const state = await inner.latches.look(name, process);
        if (looks === 1) await answered.opened;
        return state;
      },
    };
    backend.openPrimitiveStores = () => ({ ...inner, latches });
    await using app = await startLockServices({ backend });
    const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
    await latch.define('look', { count: 1, ttl: '1m' });
    const first = latch.await('look', { wait: '1m' });
    await eventually(() => looks === 1);
    await latch.countDown('look');
    const second = latch.await('look', { wait: 0 });
    answered.open();
    await Promise.all([first, second]);
  });

  it('ends one commandTimeout after its wait, also behind a look of another call', async () => {
    const clock = new DrivenClock();
    clock.start();
    try {
      const backend = memory() as LockBackend & PrimitiveStoreProvider;
      const inner = backend.openPrimitiveStores(undefined);
      const look = async (name: string, process?: string) => {
        const state = await inner.latches.look(name, process);
        await new Promise((resolve) => setTimeout(resolve, 700));
        return state;
      };
      backend.openPrimitiveStores = () => ({ ...inner, latches: { ...inner.latches, look } });
      await using app = await startLockServices({ backend, commandTimeout: 1_000 });
      const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
      await latch.define('slow', { count: 1, ttl: '10m' });
      const left = new AbortController();
      const first = Promise.allSettled([latch.await('slow', { wait: '5m', signal: left.signal })]);
      await clock.pass(10);
      const began = performance.now();
      const second = latch.await('slow', { wait: 0 });
      await expect(clock.settle(second)).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
      expect(performance.now() - began).toBeLessThanOrEqual(1_010);
      left.abort();
      await first;
    } finally {
      clock.stop();
    }
  });

  it('refuses each call once the application has ended', async () => {
    const app = await startLockServices({ backend: memory() });
    const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
    await latch.define('ended', { count: 1, ttl: '1m' });
    await app.close();
    for (const call of [
      () => latch.define('ended', { count: 1, ttl: '1m' }),
      () => latch.countDown('ended'),
      () => latch.count('ended'),
      () => latch.await('ended'),
    ]) {
      await expect(call()).rejects.toMatchObject({
        code: 'PRIMITIVE_BACKEND',
        message: expect.stringMatching(/latch "ended" failed: the application (has ended|is shutting down)/) as string,
      });
    }
  });
});

describe('a candidacy', () => {
  /** Grants of the lock that arrive when something else has just happened in this process. */

  /** Grants the lock at `grant`, even after the wait was aborted: as if the grant had been on its way. */
  class LateLocks {
    attempts = 0;
    grant: (lock: Lock) => void = () => {};
    fail: (error: Error) => void = () => {};

    withLock<T>(_name: string, _options: object, body: (lock: Lock) => Promise<T>): Promise<T> {
      this.attempts += 1;
      return new Promise((resolve, reject) => {
        this.fail = reject;
        this.grant = (lock) => resolve(body(lock));
      });
    }
  }

  const warnings: string[] = [];
  const logger = { log() {}, warn: (text: string) => void warnings.push(text), error() {} };

  function stand(lease = 10_000) {
    const locks = new LateLocks();
    const settings = { lease, backend: undefined };
    const source = { backend: 'scripted', label: 'test' };
    const lockService = locks as unknown as LockService;
    const candidacy = new StandingCandidacy('restock', settings, lockService, logger, () => {}, source);
    const terms: number[] = [];
    candidacy.listen({ onElected: (_signal, term) => void terms.push(term) });
    return { locks, candidacy, terms };
  }

  const lock = (signal: AbortSignal) => ({ fencingToken: 7, signal, held: !signal.aborted }) as Lock;

  it('elects nobody when the lock is granted to a candidate that has left', async () => {
    const { locks, candidacy, terms } = stand();
    const left = candidacy.leave();
    locks.grant(lock(new AbortController().signal));
    await left;
    expect(terms).toEqual([]);
    expect(candidacy.isLeader).toBe(false);
  });

  it('elects nobody when the lease ended before the term could begin, and stands again', async () => {
    const { locks, candidacy, terms } = stand();
    locks.grant(lock(AbortSignal.abort(new Error('the lease ended'))));
    await candidacy.answered;
    for (let step = 0; step < 20; step++) await Promise.resolve();
    expect(terms).toEqual([]);
    expect(locks.attempts).toBe(2);
  });

  it('knows that it does not lead as soon as the first attempt has failed', async () => {
    const { locks, candidacy } = stand();
    let answered = false;
    void candidacy.answered.then(() => (answered = true));
    locks.fail(new Error('the store is away'));
    for (let step = 0; step < 20; step++) await Promise.resolve();
    expect([answered, candidacy.isLeader]).toEqual([true, false]);
    await candidacy.leave();
  });

  it('warns of no work that has stopped with its term', async () => {
    const { locks, candidacy } = stand(20);
    locks.grant(lock(new AbortController().signal));
    await candidacy.answered;
    await candidacy.resign();
    await sleep(100);
    expect(warnings.filter((text) => text.includes('has not settled'))).toEqual([]);
    await candidacy.leave();
  });
});

it('gives back what a permit request without an answer is granted after the release', async () => {
  const clock = new DrivenClock();
  clock.start();
  let late = async () => {};
  let releases = 0;
  await using app = await semaphoresWith((inner) => ({
    acquire: async (request) => {
      late = async () => void (await inner.acquire(request));
      throw new Error('connection lost');
    },
    release: (request) => {
      releases += 1;
      return inner.release(request);
    },
  }));
  const left = () => app.semaphores.available('late', { permits: 1 });
  await expect(app.semaphores.tryAcquire('late', { permits: 1 })).rejects.toThrow('connection lost');
  expect(releases).toBe(1);
  await late();
  expect(await left()).toBe(0);
  await clock.pass(1_100);
  expect([await left(), releases]).toEqual([1, 2]);
  clock.stop();
});

it('repeats the release of a permit for as long as the claim of a waiter lasts, if that is longer than its ttl', async () => {
  const clock = new DrivenClock();
  clock.start();
  const released: string[] = [];
  let away = true;
  await using app = await semaphoresWith((inner) => ({
    release: async (request) => {
      if (away) throw new Error('connection lost');
      released.push(request.name);
      return inner.release(request);
    },
  }));
  const permit = await app.semaphores.acquire('short', { permits: 1, ttl: 500 });
  await clock.settle(permit.release());
  await clock.pass(1_000);
  away = false;
  // Repetitions pause in real time, and end on the driven clock.
  for (let time = 0; time < 500 && released.length === 0; time++) await sleep(10);
  expect(released).toEqual(['short']);
  clock.stop();
});

describe('local shares of a rate limit', () => {
  const clock = new DrivenClock();
  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  /** Shares of a store that answers as `answer` says, and what it was asked for. */
  function sharesOf(answer: (most: number) => Omit<Taken, 'decidedBy'>) {
    const asked: number[] = [];
    const counts: Pick<RateLimitCounts, 'take'> = {
      take: async (_key, _settings, { most }) => {
        asked.push(most);
        return { ...answer(most), decidedBy: 'store' };
      },
    };
    return { shares: new LocalShares(counts as RateLimitCounts), asked };
  }

  it('spends no unit of a share beyond its "per"', async () => {
    const { shares, asked } = sharesOf((most) => ({ allowed: true, granted: most, used: [0] }));
    const settings = rateLimitSettings({ limit: 10, per: '1s', localShare: 5 });
    expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 4 });
    await clock.pass(999);
    expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 3 });
    expect(asked).toEqual([5]);
    await clock.pass(1);
    expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 4 });
    expect(asked).toEqual([5, 5]);
  });

  it('remembers a denial until the store can allow its cost, and asks for a smaller cost', async () => {
    // Of 10 units none is left; one comes back every 100 ms.
    const { shares, asked } = sharesOf(() => ({ allowed: false, granted: 0, used: [1_000_000] }));
    const settings = (cost: number) => rateLimitSettings({ limit: 10, per: '1s', cost, localShare: 5 });
    for (let call = 0; call < 3; call++) expect((await shares.take('key', settings(2), 5)).allowed).toBe(false);
    expect(asked).toHaveLength(1);
    await clock.pass(199);
    expect((await shares.take('key', settings(3), 5)).allowed).toBe(false);
    expect(asked).toHaveLength(1);
    await clock.pass(1);
    expect((await shares.take('key', settings(2), 5)).allowed).toBe(false);
    expect(asked).toHaveLength(2);
    expect((await shares.take('key', settings(1), 5)).allowed).toBe(false);
    expect(asked).toHaveLength(3);
  });

  it('asks once for all calls that wait while nobody counts', async () => {
    let asked = 0;
    const counts: Pick<RateLimitCounts, 'take'> = {
      take: async (): Promise<Taken> => {
        asked += 1;
        await new Promise(setImmediate);
        return { allowed: true, granted: 2, used: [0], decidedBy: 'nobody' };
      },
    };
    const shares = new LocalShares(counts as RateLimitCounts);
    const settings = rateLimitSettings({ limit: 10, per: '1h', cost: 2, onFailure: 'open', localShare: 5 });
    const taken = await Promise.all(Array.from({ length: 1_000 }, () => shares.take('key', settings, 5)));
    for (const each of taken) expect(each).toMatchObject({ allowed: true, granted: 2, decidedBy: 'nobody' });
    expect(asked).toBe(1);
  });
});

/** A backend that keeps locks and nothing else. */
const locksAlone = (): LockBackend => bare('a table');

it('refuses what needs a store of its own on a backend that keeps locks alone, and names the remedy', async () => {
  await using app = await startLockServices({ backend: locksAlone(), backends: { memory: memory() } });
  const runtime = new PrimitiveRuntime(app.backends);
  const [semaphores, latches] = [new SemaphoreService(runtime), new CountDownLatch(runtime)];
  const limiter = new RateLimiter(runtime, () => new MemoryRateLimitStore());
  const once = new IdempotencyService(runtime, app.locks);
  const remedy = 'and "a table" does not; give RedisLockModule the option "redis" or "backend: memory()"';
  const refusal = (primitive: string) => ({
    code: 'PRIMITIVE_CONFIG',
    message: expect.stringContaining(`${primitive} need a backend that keeps them, ${remedy}`),
  });
  await expect(semaphores.acquire('a', { permits: 1 })).rejects.toMatchObject(refusal('Semaphores'));
  await expect(semaphores.available('a')).rejects.toMatchObject(refusal('Semaphores'));
  await expect(latches.define('a', { count: 1, ttl: '1m' })).rejects.toMatchObject(refusal('Latches'));
  await expect(latches.await('a')).rejects.toMatchObject(refusal('Latches'));
  for (const onFailure of ['open', 'closed', 'local'] as const) {
    const taken = limiter.take('a', { limit: 1, per: '1s', onFailure });
    await expect(taken).rejects.toMatchObject(refusal('Rate limits'));
    const counted = limiter.throttlerStorage({ onFailure }).increment('a', 1_000, 1, 1_000, 'default');
    await expect(counted).rejects.toMatchObject(refusal('Rate limits'));
  }
  let ran = false;
  const body = async () => void (ran = true);
  await expect(once.run('a', { ttl: '1m' }, body)).rejects.toMatchObject(refusal('Idempotent methods'));
  expect(ran).toBe(false);
  const named = { backend: 'memory' };
  expect(await limiter.take('a', { limit: 1, per: '1s', ...named })).toMatchObject({ decidedBy: 'store' });
  await once.run('a', { ttl: '1m', ...named }, body);
  expect(ran).toBe(true);
  expect(await semaphores.available('a', { permits: 2, backend: 'memory' })).toBe(2);
  const shared = { permits: 2, count: 2, wait: '2s', ttl: '10s', backend: 'memory' } as const;
  const permit = await semaphores.acquire('a', shared);
  expect(await semaphores.available('a', shared)).toBe(0);
  await permit.release();
  const wrong = { ...shared, wait: 'soon' };
  await expect(semaphores.available('a', wrong)).rejects.toMatchObject({ code: 'PRIMITIVE_CONFIG' });
  await expect(semaphores.acquire('a', { permits: 1, backend: 'none' })).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
});
