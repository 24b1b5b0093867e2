import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { jest } from '@jest/globals';
import {
  BackendRefusal,
  CountDownLatch,
  memory,
  SemaphoreService,
  type LockBackend,
  type LockService,
} from 'nest-redis-lock';
import type { ModuleContext, RenewAnswer } from 'nest-redis-lock/backend';
import type {
  PrimitiveStoreProvider,
  PrimitiveStores,
  SemaphoreStore,
} from '../../../lib/contracts/primitive-stores.js';
import { eventually } from '../../support/eventually.js';
import { answering, lying, lyingSemaphores } from '../../support/lying-backend.js';
import { startLockApp } from '../../support/lock-app.js';
import { openBackend, type OpenBackend, type Replacements, replacing } from '../../support/open-backend.js';
import { primitivesWith } from '../../support/primitives-with.js';

const REMAINING = [3_600_000, Infinity];

describe('a lease', () => {
  const saying = (remaining: number) =>
    lying((honest) => ({
      ...answering(honest, async (answered) => {
        const answer = await answered;
        return answer.status === 'granted' ? { ...answer, remaining } : answer;
      }),
      renew: (requests) =>
        honest.renew(requests).map(async (pending) => {
          const answer = await pending;
          return answer.status === 'renewed' ? { ...answer, remaining } : answer;
        }),
    }));

  it.each(REMAINING)('counts for no longer than was asked, though the store says %s ms', async (remaining) => {
    await using app = await startLockApp({ backend: saying(remaining) });
    for (const options of [{ ttl: 1_000 }, { ttl: 1_000, mode: 'read' }, { ttl: 1_000, renew: false }] as const) {
      const lock = await app.locks.acquire('one', options);
      expect(lock.remaining()).toBeLessThanOrEqual(1_000);
      await lock.extend();
      expect(lock.remaining()).toBeLessThanOrEqual(1_000);
      await lock.release();
    }
    const several = await app.locks.acquire(['a', 'b'], { ttl: 1_000 });
    expect(several.remaining()).toBeLessThanOrEqual(1_000);
    await several.release();
    expect(app.logger.lines.filter(({ text }) => /was asked for/.test(text))).toHaveLength(1);
  });

  it('of a session, which is longer, is nothing to warn of', async () => {
    const session = { ...memory().traits, lease: 'session' } as const;
    const backend = saying(10_000);
    Object.defineProperty(backend, 'traits', { value: session });
    await using app = await startLockApp({ backend });
    const lock = await app.locks.acquire('one', { ttl: 1_000 });
    expect(lock.remaining()).toBeLessThanOrEqual(1_000);
    await lock.extend();
    await lock.release();
    expect(app.logger.matching(/was asked for/)).toEqual([]);
  });

  it.each([Number.NaN, -5])('is never trusted where the store says %s ms', async (remaining) => {
    await using app = await startLockApp({ backend: saying(remaining) });
    await expect(app.locks.tryAcquire('one', { ttl: 1_000 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  });

  it('of a permit counts for no longer than was asked', async () => {
    const backend = lyingSemaphores((honest) => ({
      acquire: async (request) => {
        const answer = await honest.acquire(request);
        return answer.status === 'granted' ? { ...answer, remaining: 3_600_000 } : answer;
      },
      renew: async () => 3_600_000,
    }));
    await using app = await startLockApp({ backend });
    const permit = await app.app.get(SemaphoreService).acquire('three', { permits: 3, ttl: 1_000 });
    expect(permit.remaining()).toBeLessThanOrEqual(1_000);
    await permit.release();
  });
});

describe('a fencing token', () => {
  /** After `lose()`, counts from below; obeys the least token of a mint only where `obeys`. */
  function forgetful(obeys: boolean): { backend: LockBackend; lose(): void } {
    let lost = 0;
    const backend = lying((honest) => ({
      ...answering(honest, async (answered) => {
        const answer = await answered;
        return answer.status === 'granted' && lost > 0 ? { ...answer, tokens: { first: lost++, count: 1 } } : answer;
      }),
      mint: async (request) => {
        const minted = await honest.mint(request);
        return minted && lost > 0 ? { first: Math.max(lost++, obeys ? request.leastToken : 0), count: 1 } : minted;
      },
    }));
    return { backend, lose: () => void (lost = 5) };
  }

  it.each(['write', 'read'] as const)('never falls in a process that lives, mode %s', async (mode) => {
    const store = forgetful(true);
    await using app = await startLockApp({ backend: store.backend });
    await using other = await startLockApp({ backend: store.backend });
    let before = 0;
    for (const locks of [app.locks, other.locks, app.locks]) {
      const lock = await locks.acquire('one', { mode });
      expect(lock.fencingToken).toBeGreaterThanOrEqual(mode === 'read' ? before : before + 1);
      before = lock.fencingToken;
      await lock.release();
      store.lose();
    }
    // All lines go to the logger of the application that was made last.
    expect(other.logger.lines.filter(({ text }) => /has lost data/.test(text))).not.toHaveLength(0);
  });

  it('never falls for several names', async () => {
    const store = forgetful(true);
    await using app = await startLockApp({ backend: store.backend });
    const one = await app.locks.acquire(['a', 'b']);
    await one.release();
    store.lose();
    const two = await app.locks.acquire(['a', 'b']);
    expect(two.fencingToken).toBeGreaterThan(one.fencingToken);
    await two.release();
  });

  it('below those seen is an error where the store does not mint others', async () => {
    const store = forgetful(false);
    await using app = await startLockApp({ backend: store.backend });
    await (await app.locks.acquire('one')).release();
    store.lose();
    await expect(app.locks.acquire('one', { wait: 100 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await expect(app.locks.acquire(['one', 'two'], { wait: 100 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  });

  it('of a permit is not handed on below those seen', async () => {
    let lost = false;
    const backend = lyingSemaphores((honest) => ({
      acquire: async (request) => {
        const answer = await honest.acquire(request);
        return answer.status === 'granted' && lost ? { ...answer, fencingToken: 5 } : answer;
      },
    }));
    await using app = await startLockApp({ backend });
    const semaphores = app.app.get(SemaphoreService);
    await (await semaphores.acquire('three', { permits: 3 })).release();
    lost = true;
    await expect(semaphores.acquire('three', { permits: 3, wait: 100 })).rejects.toMatchObject({
      message: expect.stringMatching(/has lost data/) as string,
    });
    lost = false;
    await (await semaphores.acquire('three', { permits: 3 })).release();
  });
});

describe('a refusal', () => {
  const refusal = new BackendRefusal('The pooler shares sessions; connect without it');

  it.each(['start', 'acquire'] as const)('by %s lasts, and is not asked again', async (where) => {
    let asked = 0;
    const refuses = async (): Promise<never> => {
      asked += 1;
      throw refusal;
    };
    await using app = await startLockApp({ backend: lying(() => ({ [where]: refuses })) });
    if (where === 'acquire')
      await expect(app.locks.acquire('one', { wait: 60_000 })).rejects.toThrow(/shares sessions/);
    else await eventually(() => asked > 0);
    const before = asked;
    const calls = [
      () => app.locks.acquire('one', { wait: 60_000 }),
      () => app.locks.acquire('one', { wait: 60_000, retry: () => [10, 10].values() }),
      () => app.locks.acquire(['a', 'b'], { wait: 60_000 }),
      () => app.locks.tryAcquire('one', { mode: 'read' }),
      () => app.locks.inspect('one'),
      () => app.locks.isLocked('one'),
      () => app.locks.forceRelease('one'),
      () => app.locks.list('*'),
      () => app.app.get(SemaphoreService).acquire('three', { permits: 3, wait: 60_000 }),
    ];
    for (const call of calls) await expect(call()).rejects.toThrow(/shares sessions/);
    expect(asked).toBe(before);
  });
});

describe('what a store goes on refusing until somebody mends it', () => {
  const lasting = Object.assign(new Error('NOPERM no permission for this key'), { lasts: true });

  it.each([
    ['one name', (locks) => locks.acquire('one', { wait: 5_000 })],
    ['one name with pauses of its own', (locks) => locks.acquire('one', { wait: 5_000, retry: () => [1, 1].values() })],
    ['several names', (locks) => locks.acquire(['a', 'b'], { wait: 5_000 })],
  ] satisfies [string, (locks: LockService) => Promise<unknown>][])('ends the wait for %s', async (_, call) => {
    let asked = 0;
    const refuses = async (): Promise<never> => {
      asked += 1;
      throw lasting;
    };
    await using app = await startLockApp({ backend: lying(() => ({ acquire: refuses, acquireSeveral: refuses })) });
    await expect(call(app.locks)).rejects.toMatchObject({
      code: 'LOCK_BACKEND',
      message: expect.stringMatching(/NOPERM/),
    });
    expect(asked).toBe(1);
  });

  it.each([
    ['a right', lasting],
    ['all', new BackendRefusal('The pooler shares sessions; connect without it')],
  ])('ends the wait for permits and latches (%s)', async (_, error) => {
    const refuses = async (): Promise<never> => {
      throw error;
    };
    const backend = primitivesWith({ semaphores: { acquire: refuses }, latches: { look: refuses } });
    await using app = await startLockApp({ backend });
    const permit = app.app.get(SemaphoreService).acquire('three', { permits: 3, wait: Infinity });
    await expect(permit).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
    const opened = app.app.get(CountDownLatch).await('gate', { wait: Infinity });
    await expect(opened).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
  });
});

describe('a hold that another module frees by force', () => {
  it.each([{}, { renew: false }])('is lost at once, in memory, with %j', async (options) => {
    const backend = memory();
    await using one = await startLockApp({ backend });
    await using two = await startLockApp({ backend });
    const lock = await one.locks.acquire('one', options);
    expect(await two.locks.forceRelease('one')).toBe(true);
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
  });

  it('is noticed although it is not renewed and no message comes', async () => {
    const backend = lying(
      () => ({}),
      (module) => ({ ...module, lost: () => {} }),
    );
    await using one = await startLockApp({ backend });
    const lock = await one.locks.acquire('one', { ttl: 3_000, renew: false });
    await openBackend(backend).forceRelease?.({ name: 'one' });
    await eventually(() => lock.signal.aborted);
    expect(lock.signal.reason).toMatchObject({ reason: 'taken' });
  });
});

describe('a short lease', () => {
  it.each([{ writesAtOnce: true }, { writesAtOnce: false }, { writesAtOnce: false, lease: 'session' as const }])(
    'is renewed before its holder runs (%j)',
    async ({ writesAtOnce, ...traits }) => {
      const renewals: number[] = [];
      const backend = lying((honest) => ({
        traits: { ...honest.traits, ...traits, writesAtOnce },
        renew: (requests) => {
          renewals.push(...requests.map(({ ttl }) => ttl));
          return honest.renew(requests);
        },
      }));
      await using app = await startLockApp({ backend });
      const first = await app.locks.acquire('one', { ttl: 1_000, renew: false });
      const second = app.locks.withLock('one', { ttl: 20_000 }, async (lock) => ({
        sent: renewals.includes(20_000),
        left: lock.remaining(),
      }));
      await first.release();
      const seen = await second;
      expect(seen.sent).toBe(true);
      if (!writesAtOnce) expect(seen.left).toBeGreaterThan(15_000);
    },
  );

  it('of a session that is shorter than the `ttl` is renewed only when most of the session is over', async () => {
    const renewals: number[] = [];
    let left = 5_000;
    const backend = lying((honest) => ({
      traits: { ...honest.traits, writesAtOnce: false, lease: 'session' as const },
      acquire: async (request) => ({ ...(await honest.acquire(request)), remaining: left }),
      queue: undefined,
      renew: (requests) => {
        renewals.push(...requests.map(({ ttl }) => ttl));
        return honest.renew(requests);
      },
    }));
    await using app = await startLockApp({ backend });
    const renewed = () => app.locks.withLock('one', { ttl: 20_000 }, async () => renewals.length);
    expect(await renewed()).toBe(0);
    left = 1_000;
    expect(await renewed()).toBe(1);
  });

  it('of a session is short by what a renewal has shown that the session gives', async () => {
    let renewals = 0;
    const backend = lying((honest) => ({
      traits: { ...honest.traits, writesAtOnce: false, lease: 'session' as const },
      acquire: async (request) => ({ ...(await honest.acquire(request)), remaining: 2_000 }),
      queue: undefined,
      renew: (requests) => {
        renewals += 1;
        return requests.map(async () => ({ status: 'renewed' as const, remaining: 5_000 }));
      },
    }));
    await using app = await startLockApp({ backend });
    const lock = await app.locks.acquire('one', { ttl: 20_000 });
    await eventually(() => lock.remaining() > 3_000);
    await lock.release();
    const before = renewals;
    expect(await app.locks.withLock('one', { ttl: 20_000 }, async () => renewals - before)).toBe(1);
  });
});

describe('a standstill', () => {
  afterEach(() => void jest.restoreAllMocks());

  /** Lets the monotonic clock jump, as for a process that stood still. Returns how to jump. */
  function jumpingClock(): (ms: number) => void {
    const now = performance.now.bind(performance);
    let jumped = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => now() + jumped);
    return (ms) => void (jumped += ms);
  }

  it.each([
    ['one name', 'one', {}],
    ['two names', ['one', 'two'], {}],
    ['a reader', 'one', { mode: 'read' }],
    ['minHold', 'one', { minHold: 10 }],
    ['a retry', ['one', 'two'], { retry: () => [].values() }],
  ] as const)('between the grant and its holder is no loss: %s', async (_what, names, options) => {
    let ticks = 0;
    const jump = jumpingClock();
    const backend = lying((honest) =>
      answering(honest, (answer) => {
        void answer.then(async () => {
          for (let tick = 0; tick < ticks; tick++) await Promise.resolve();
          if (ticks < 24) jump(110);
        });
        return answer;
      }),
    );
    await using app = await startLockApp({ backend });
    const got = new Set<string>();
    for (; ticks < 24; ticks++) {
      const lock = await app.locks
        .tryAcquire(names, { ttl: 100, renew: false, ...options })
        .catch((error: Error) => error.constructor.name);
      got.add(typeof lock === 'string' ? lock : lock === null ? 'null' : 'a lock');
      if (typeof lock === 'object') await lock?.release().catch(() => {});
    }
    expect([...got].filter((each) => !['null', 'a lock', 'LockBackendError'].includes(each))).toEqual([]);
  });

  describe('of a body, right after the loop read a message', () => {
    /** A socket and its other end. The kernel has what is written at once; the loop reads it in its next turn. */
    async function socketPair(): Promise<[Socket, Socket]> {
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      const near = connect((server.address() as { port: number }).port, '127.0.0.1');
      const [far] = (await once(server, 'connection')) as [Socket];
      server.close();
      return [near, far];
    }
    let near: Socket;
    let far: Socket;
    beforeAll(async () => {
      [near, far] = await socketPair();
      far.setNoDelay(true);
    });
    afterAll(() => {
      near.destroy();
      far.destroy();
    });

    const TTL = 3_000;
    /** Runs in the turn that reads a message: the answer to the renewal comes now, and is read in the next turn. */
    const answerAndStandStill = async (left: number) => {
      const jump = jumpingClock();
      const read = new Promise<void>((resolve) => {
        near.once('data', () => {
          far.write('answer');
          jump(left + 100);
          resolve();
        });
      });
      far.write('message');
      await read;
    };
    /** After the message. */
    const answered = async () => {
      for (let read = ''; !read.endsWith('answer');) [read] = (await once(near, 'data')).map(String) as [string];
    };

    it('loses no lock whose renewal has been answered', async () => {
      let renewing: (() => void) | undefined;
      const underWay = new Promise<void>((resolve) => (renewing = resolve));
      const backend = lying((honest) => ({
        renew: (requests) =>
          honest.renew(requests).map(async (pending) => {
            renewing?.();
            await answered();
            return pending;
          }),
      }));
      await using app = await startLockApp({ backend });
      await app.locks.withLock('one', { ttl: TTL }, async (lock) => {
        await underWay;
        await answerAndStandStill(lock.remaining());
      });
    });

    it('loses no permit whose renewal has been answered', async () => {
      let renewing: (() => void) | undefined;
      const underWay = new Promise<void>((resolve) => (renewing = resolve));
      const backend = lyingSemaphores((honest) => ({
        renew: async (request) => {
          const answer = honest.renew(request);
          renewing?.();
          await answered();
          return answer as Promise<number | undefined>;
        },
      }));
      await using app = await startLockApp({ backend });
      await app.app.get(SemaphoreService).withPermit('three', { permits: 3, ttl: TTL }, async (permit) => {
        await underWay;
        await answerAndStandStill(permit.remaining());
      });
    });
  });
});

it('asks for every lock and permit at once when a connection came back without what it granted', async () => {
  const listeners = new Set<() => void>();
  const forgotten = { locks: false };
  const heard = (module: ModuleContext) => {
    listeners.add(module.connected);
    return { ...module, lost: () => {} };
  };
  const honestStores = memory() as LockBackend & PrimitiveStoreProvider;
  const lies = (honest: OpenBackend): Replacements => ({
    renew: (requests) =>
      forgotten.locks
        ? requests.map(async (): Promise<RenewAnswer> => ({ status: 'not-owner' }))
        : honest.renew(requests),
    openPrimitiveStores: (prefix: string | undefined): PrimitiveStores => {
      const stores = honestStores.openPrimitiveStores(prefix);
      const semaphores = Object.assign(Object.create(stores.semaphores) as SemaphoreStore, {
        renew: async (request: Parameters<SemaphoreStore['renew']>[0]) =>
          forgotten.locks ? undefined : stores.semaphores.renew(request),
      });
      return Object.assign(Object.create(stores) as PrimitiveStores, { semaphores });
    },
  });
  const backend = replacing(honestStores, lies, heard);
  await using app = await startLockApp({ backend });
  const semaphores = app.app.get(SemaphoreService);
  const held = [
    await app.locks.acquire('one', { ttl: '1h' }),
    await app.locks.acquire('two', { ttl: '1h', renew: false }),
    await app.locks.acquire('three', { ttl: '1h', mode: 'read' }),
    await semaphores.acquire('four', { permits: 3, count: 2, ttl: '1h' }),
  ];
  forgotten.locks = true;
  for (const listener of listeners) listener();
  // Not by their renewals, which come seconds later.
  for (let turns = 0; turns < 100; turns++) await turn();
  for (const { signal } of held) expect(signal.aborted).toBe(true);
});

it('lets a reader that is left of a write hold keep its own limits', async () => {
  await using app = await startLockApp({ backend: memory() });
  let reader: Awaited<ReturnType<typeof app.locks.acquire>> | undefined;
  await app.locks.withLock('one', async () => {
    reader = await app.locks.acquire('one', { mode: 'read', maxHold: 500 });
  });
  expect(reader?.held).toBe(true);
  expect(reader?.remaining()).toBeLessThanOrEqual(500);
  await eventually(() => reader?.signal.aborted);
  expect(reader?.signal.reason).toMatchObject({ reason: 'maxHold' });
});
