import { setTimeout as sleep } from 'node:timers/promises';
import { type LockBackend, LockBackendError, LockConfigError, type LockOptions, memory } from 'nest-redis-lock';
import type { AcquireAnswer, CacheStoreProvider, ModuleContext, Pending, RenewAnswer } from 'nest-redis-lock/backend';
import { testServices } from 'nest-redis-lock/testing';
import { DrivenClock } from '../../support/driven-clock.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockServices } from '../../support/lock-services.js';
import { bare, type OpenBackend, type Replacements, replacing } from '../../support/open-backend.js';

/** The memory backend with the calls alone that every backend has, some of them replaced. */
function backendWith(replace: (inner: OpenBackend) => Replacements): LockBackend {
  return replacing(bare('custom'), replace);
}

it('frees what is granted after its caller gave up, even if the release overtook the grant', async () => {
  const arrive = new Gate();
  const released: string[] = [];
  const backend = backendWith((inner) => ({
    acquire: async (request): Promise<AcquireAnswer> => {
      if (request.name === 'late') await arrive.opened;
      return inner.acquire(request);
    },
    release: (request) => {
      released.push(request.ticket);
      return inner.release(request);
    },
  }));
  await using app = await startLockServices({ backend, commandTimeout: 100 });
  await expect(app.locks.tryAcquire('late')).rejects.toBeInstanceOf(LockBackendError);
  expect(released).toHaveLength(1);
  arrive.open();
  await eventually(() => released.length === 2);
  expect(new Set(released).size).toBe(1);
  expect(await app.locks.isLocked('late')).toBe(false);
});

it('listens to nothing that a backend tells while it opens', async () => {
  const inner = bare('custom');
  const backend: LockBackend = Object.assign(Object.create(inner) as LockBackend, {
    open: (module: ModuleContext) => {
      module.connected();
      module.interrupted();
      module.reconnected();
      module.lost(['other:1'], new Error('ended'));
      module.message({ kind: 'revoked', ticket: 'other:1' });
      return inner.open(module);
    },
  });
  await using app = await startLockServices({ backend });
  expect(await app.locks.withLock('x', async () => 'held')).toBe('held');
});

it('acts once on what a backend reports in each request that follows from that', async () => {
  let module: ModuleContext | undefined;
  const renewed: string[] = [];
  const inner = bare('custom');
  const backend: LockBackend = Object.assign(Object.create(inner) as LockBackend, {
    open: (opened: ModuleContext) => {
      module = opened;
      const store = inner.open(opened);
      return Object.assign(Object.create(store) as typeof store, {
        renew: (requests: Parameters<typeof store.renew>[0]) => {
          renewed.push(...requests.map(({ name }) => name));
          opened.connected();
          return store.renew(requests);
        },
      });
    },
  });
  await using app = await startLockServices({ backend });
  const lock = await app.locks.acquire('told');
  module?.connected();
  await eventually(() => renewed.length > 0);
  expect(renewed).toEqual(['told']);
  expect(lock.held).toBe(true);
  // One without types tells of one ticket.
  module?.lost(lock.owner as unknown as string[], new Error('ended'));
  expect(lock.held).toBe(false);
});

it.each<[string, unknown, RegExp]>([
  ['the promise of a store', Promise.resolve({}), /returned \[?Promise\]?.*no method "acquire"/],
  ['nothing', undefined, /returned undefined, which has no method "acquire"/],
  ['a part of one', { acquire() {}, renew() {} }, /returned \[?Object\]?.*no method "release"/],
])('refuses a backend that opens %s', async (_what, store, message) => {
  const backend = Object.assign(Object.create(bare('custom')) as LockBackend, { open: () => store });
  const started = startLockServices({ backend });
  await expect(started).rejects.toThrow(LockConfigError);
  await expect(started).rejects.toThrow(message);
});

it.each<[string, LockOptions]>([
  ['with `minHold`', { minHold: 1_000 }],
  ['with `retry`', { retry: () => [10].values() }],
])('names `maxHold` where it ended before the grant arrived, %s', async (_case, options) => {
  const backend = backendWith((inner) => ({
    acquire: async (request) => {
      const answer = await inner.acquire(request);
      await sleep(100);
      return answer;
    },
    keep: (request) => inner.release(request),
  }));
  await using app = await startLockServices({ backend });
  const error: unknown = await app.locks.acquire('x', { maxHold: 50, ...options }).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockBackendError);
  expect(error).toHaveProperty('message', 'Lock backend "custom" granted too late: the `maxHold` of 50 ms had ended');
});

it('never uses a ticket again that was granted, or given up', async () => {
  const ended = new Set<string>();
  const reused: string[] = [];
  let tries = 0;
  const backend = backendWith((inner) => ({
    acquire: (request) => {
      tries += 1;
      if (ended.has(request.ticket)) reused.push(request.ticket);
      return inner.acquire(request);
    },
    release: (request) => {
      ended.add(request.ticket);
      return inner.release(request);
    },
  }));
  await using app = await startLockServices({ backend });
  await using other = await startLockServices({ backend });
  for (let round = 0; round < 3; round++) {
    const held = await app.locks.acquire('tickets');
    await expect(other.locks.acquire('tickets', { wait: 200 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await held.release();
  }
  expect(tries).toBeGreaterThan(6);
  expect(ended.size).toBe(6);
  expect(reused).toEqual([]);
});

it('explains the errors of a backend, with their cause', async () => {
  const cause = new Error('disk on fire');
  const backend = backendWith(() => ({ acquire: () => Promise.reject(cause) }));
  await using app = await startLockServices({ backend });
  const error: unknown = await app.locks.tryAcquire('fire').catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockBackendError);
  expect(error).toMatchObject({ cause, keys: ['fire'], message: expect.stringMatching(/custom.*disk on fire/) });
});

it('is asked for one name after the other, in order, if it cannot take several in one step', async () => {
  const asked: string[] = [];
  const backend = backendWith((inner) => ({
    acquire: (request) => {
      asked.push(request.name);
      return inner.acquire(request);
    },
  }));
  await using app = await startLockServices({ backend });
  const both = await app.locks.acquire(['b', 'a']);
  expect(asked).toEqual(['a', 'b']);
  expect(await app.locks.tryAcquire(['b', 'c'])).toBeNull();
  expect(await app.locks.isLocked('c')).toBe(false);
  await expect(app.locks.acquire(['b', 'c'], { wait: 50 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  await both.release();
  const again = await app.locks.acquire(['a', 'b'], { wait: 0 });
  expect(again.fencingToken).toBeGreaterThan(both.fencingToken);
  await again.release();
});

describe('that cannot take several names in one step', () => {
  it('has one wait for all of them, and gives back those it had got', async () => {
    const clock = new DrivenClock();
    clock.start();
    try {
      const backend = backendWith(() => ({}));
      const [app, other] = [await startLockServices({ backend }), await startLockServices({ backend })];
      const [a, b] = [await other.locks.acquire('a'), await other.locks.acquire('b')];
      const start = performance.now();
      const ended = app.locks.acquire(['a', 'b'], { wait: 1_000 }).catch((error: unknown) => {
        expect(error).toMatchObject({ code: 'LOCK_TIMEOUT' });
        return performance.now() - start;
      });
      await clock.pass(700);
      await a.release();
      // A wait for each name would be over 1,700 ms after the start.
      expect(await clock.settle(ended)).toBe(1_000);
      await clock.eventually(async () => !(await app.locks.isLocked('a')));
      await b.release();
      await clock.settle(Promise.all([app.close(), other.close()]));
    } finally {
      clock.stop();
    }
  });

  it('has all of them freed although the release of one fails', async () => {
    let failures = 0;
    const backend = backendWith((inner) => ({
      release: (request) => {
        if (request.name !== 'a' || failures === 2) return inner.release(request);
        failures += 1;
        return Promise.reject(new Error('not now'));
      },
    }));
    await using app = await startLockServices({ backend });
    const both = await app.locks.acquire(['a', 'b']);
    await both.release();
    expect(await app.locks.isLocked('b')).toBe(false);
    await eventually(async () => !(await app.locks.isLocked('a')));
    expect(failures).toBe(2);
  });
});

it('refuses a ttl below the shortest lease that its store can grant', async () => {
  const backend = backendWith((inner) => ({ traits: { ...inner.traits, leastLease: 2_000 } }));
  await using app = await startLockServices({ backend });
  const refused = app.locks.acquire('short', { ttl: 500 });
  await expect(refused).rejects.toMatchObject({
    code: 'LOCK_CONFIG',
    message: expect.stringMatching(/"ttl" is 500.*2000/),
  });
});

/** A refused renewal says nothing: a process that stood still would read that the lock was taken. */
async function unlessRefused(renewal: Pending<RenewAnswer>): Promise<RenewAnswer> {
  const answer = await renewal;
  return answer.status === 'renewed' ? answer : new Promise(() => {});
}

it('trusts the lease that the store has granted, not the one that was requested', async () => {
  const backend = backendWith((inner) => ({
    acquire: (request) => inner.acquire({ ...request, ttl: 400 }),
    renew: (requests) => inner.renew(requests.map((request) => ({ ...request, ttl: 1 }))).map(unlessRefused),
  }));
  await using app = await startLockServices({ backend });
  for (const options of [{ ttl: 30_000 }, { ttl: 30_000, renew: false }, { ttl: 30_000, wait: 0 }] as const) {
    const lock = await app.locks.acquire('short', options);
    expect(lock.remaining()).toBeLessThan(400);
    await eventually(() => lock.signal.aborted);
    expect(lock.held).toBe(false);
    await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
  }
});

describe('whose lease ends with a session', () => {
  const session = (inner: OpenBackend): Replacements => ({ traits: { ...inner.traits, lease: 'session' } });

  it('frees a name whose holder lost it, while the holder runs on, until the store confirms it', async () => {
    let releases = 0;
    const backend = backendWith((inner) => ({
      ...session(inner),
      acquire: (request) => inner.acquire({ ...request, ttl: 3_600_000 }),
      release: (request) => {
        releases += 1;
        return releases < 4 ? Promise.reject(new Error('not now')) : inner.release(request);
      },
    }));
    await using app = await startLockServices({ backend });
    const lock = await app.locks.acquire('kept', { ttl: 200, renew: false });
    await eventually(() => lock.signal.aborted);
    const next = await app.locks.acquire('kept', { wait: 10_000 });
    expect(releases).toBeGreaterThanOrEqual(4);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await next.release();
  });

  it('says that it lost a lock as soon as the store says so', async () => {
    let lose: ModuleContext['lost'] | undefined;
    let forgotten = false;
    const heard = (module: ModuleContext) => {
      lose = module.lost;
      return module;
    };
    const stop = () => void (forgotten = true);
    const backend = replacing(bare('custom'), (inner) => ({ ...session(inner), stop }), heard);
    const app = await startLockServices({ backend, shutdownGrace: 0 });
    const [lost, kept] = await Promise.all([app.locks.acquire('lost'), app.locks.acquire('kept')]);
    expect(lost.held && kept.held).toBe(true);
    lose?.([lost.owner], new Error('the session ended'));
    expect(lost.signal.aborted).toBe(true);
    expect(lost.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    expect(kept.held).toBe(true);
    await app.close();
    expect(forgotten).toBe(true);
  });
});

it('serves the callers of one process in order of arrival if its store keeps no queue', async () => {
  await using app = await startLockServices({ backend: memory() });
  const served: number[] = [];
  const callers = Array.from({ length: 100 }, (_, caller) =>
    (async () => {
      for (let round = 0; round < 10; round++) {
        await app.locks.withLock('hot', async () => {
          served.push(caller);
          await Promise.resolve();
        });
      }
    })(),
  );
  await Promise.all(callers);
  // Nobody is served again before everybody else who waits was.
  const rounds = Array.from({ length: 10 }, (_, round) => new Set(served.slice(100 * round, 100 * (round + 1))).size);
  expect(rounds).toEqual(rounds.map(() => 100));
});

it('whose store cannot free the name of another holder refuses to do it', async () => {
  await using app = await startLockServices({ backend: backendWith(() => ({})) });
  const lock = await app.locks.acquire('forced');
  await expect(app.locks.forceRelease('forced')).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
  await lock.release();
});

it('is retried through its errors until the wait ends', async () => {
  let tries = 0;
  const backend = backendWith((inner) => ({
    acquire: (request) => {
      tries += 1;
      return tries < 4 ? Promise.reject(new Error('not yet')) : inner.acquire(request);
    },
  }));
  await using app = await startLockServices({ backend });
  const lock = await app.locks.acquire('through', { wait: 5_000 });
  expect(tries).toBe(4);
  await lock.release();
});

it('that throws instead of rejecting is asked again to release', async () => {
  let releases = 0;
  const backend = backendWith((inner) => ({
    release: (request) => {
      releases += 1;
      if (releases === 1) throw new Error('not now');
      return inner.release(request);
    },
  }));
  await using app = await startLockServices({ backend });
  await (await app.locks.acquire('thrown')).release();
  await eventually(async () => !(await app.locks.isLocked('thrown')));
  expect(releases).toBe(2);
});

it('keeps the cache too, if it provides a store for it', async () => {
  const inner = memory() as LockBackend & CacheStoreProvider;
  const opened: (string | undefined)[] = [];
  const provider: CacheStoreProvider = {
    openCacheStore: (prefix) => {
      opened.push(prefix);
      return inner.openCacheStore(prefix);
    },
  };
  const backend = replacing(bare('custom'), () => provider);
  const { cache } = testServices({ backend, prefix: 'shop' });
  await cache.set('price', 3, { ttl: '1m' });
  expect(await cache.get('price')).toBe(3);
  expect(opened).toEqual(['shop']);
});

it('refuses those that come after the tokens of a grant where `mint` throws, and frees the name', async () => {
  const inner = memory();
  const backend = replacing(inner, () => ({
    mint: () => {
      throw new Error('no tokens');
    },
  }));
  await using app = await startLockServices({ backend });
  await using other = await startLockServices({ backend: inner });
  const calls = Array.from({ length: 400 }, () =>
    app.locks.withLock('busy', { wait: 1_000, ttl: 60_000 }, async () => 'ran'),
  );
  const outcomes = await Promise.allSettled(calls);
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).not.toEqual([]);
  for (const outcome of outcomes)
    if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ name: 'LockBackendError' });
  await (await other.locks.acquire('busy', { wait: 5_000 })).release();
});
