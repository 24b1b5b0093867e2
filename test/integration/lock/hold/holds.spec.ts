import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { Redis } from 'ioredis';
import {
  DistributedLock,
  type Lock,
  type LockBackend,
  LockBackendError,
  LockConfigError,
  LockService,
  LockTimeoutError,
  memory,
  RedisLockModule,
} from 'nest-redis-lock';
import type { AcquireAnswer } from 'nest-redis-lock/backend';
import { firstValueFrom, NEVER, Observable, take, toArray } from 'rxjs';
import { collectGarbage } from '../../../support/collect-garbage.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { RENEWED_OFTEN, renewedAgain } from '../../../support/renewals.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { bare, replacing } from '../../../support/open-backend.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

/** Mints tokens for each name by itself, and keeps no queue. */
function separateTokens(): LockBackend {
  const next = new Map<string, number>();
  const withToken = (answer: AcquireAnswer, names: readonly string[], leastToken = 1): AcquireAnswer => {
    if (answer.status === 'busy') return answer;
    const fencingToken = Math.max(leastToken, ...names.map((name) => next.get(name) ?? 1));
    for (const name of names) next.set(name, fencingToken + 1);
    return { ...answer, tokens: { first: fencingToken, count: 1 } };
  };
  return replacing(bare('separate', 'acquireSeveral'), (store) => ({
    acquire: async (request) => withToken(await store.acquire(request), [request.name], request.leastToken),
    acquireSeveral: async (request) => {
      return withToken(await store.acquireSeveral!(request), request.names, request.leastToken);
    },
    mint: async ({ name, leastToken }) => {
      const first = Math.max(leastToken, next.get(name) ?? 1);
      next.set(name, first + 1);
      return { first, count: 1 };
    },
  }));
}

it('a hold of several keeps its token where not each of its names has confirmed that of a nested one', async () => {
  const backend = replacing(separateTokens(), (store) => ({
    mint: async (request) => {
      if (request.name === 'b') throw new Error('no tokens');
      return store.mint(request);
    },
  }));
  await using app = await startLockApp({ backend });
  const { locks } = app;
  let last = 0;
  for (let grant = 0; grant < 10; grant++) last = await locks.withLock('c', async ({ fencingToken }) => fencingToken);
  await locks.withLock('a', () =>
    locks.withLock(['a', 'b'], async (lock) => {
      const before = lock.fencingToken;
      expect(before).toBeLessThan(last);
      await expect(locks.withLock(['a', 'c'], async () => {})).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
      expect(lock.fencingToken).toBe(before);
    }),
  );
});

describe.each(['redis', 'memory', 'separate'] as const)('nested holds on %s', (kind) => {
  let one: LockApp;
  let two: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    const shared = kind === 'memory' ? memory() : separateTokens();
    const options = () => (kind === 'redis' ? { redis: server.url } : { backend: shared });
    [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
    locks = one.locks;
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  /** What a protected resource was shown, in order. */
  class Resource {
    private highest = 0;
    readonly refused: string[] = [];

    write(who: string, { fencingToken }: Pick<Lock, 'fencingToken'>): void {
      if (fencingToken < this.highest) this.refused.push(`${who}: ${fencingToken} after ${this.highest}`);
      this.highest = Math.max(this.highest, fencingToken);
    }
  }

  /** Lets the tokens of a name run ahead of those of others. */
  async function ahead(name: string, count = 20): Promise<void> {
    for (let hold = 0; hold < count; hold++) await locks.withLock(name, async () => {});
  }

  it('of further names show tokens that neither the outer hold nor the next holders fall behind', async () => {
    const resource = new Resource();
    await ahead('b');
    const writes = async (who: string) => locks.withLock('a', async (lock) => resource.write(who, lock));
    const began = new Gate();
    const first = locks.withLock('a', async (outer) => {
      resource.write('outer before', outer);
      began.open();
      await eventually(async () => ((await locks.inspect('a'))?.waiting ?? 0) >= 4);
      await locks.withLock(['a', 'b'], async (inner) => resource.write('inner', inner));
      resource.write('outer after', outer);
      await locks.withLock('a', async (again) => resource.write('nested again', again));
    });
    await began.opened;
    await Promise.all([first, ...['1', '2', '3', '4'].map((each) => writes(`local ${each}`))]);
    await two.locks.withLock('a', async (lock) => resource.write('elsewhere', lock));
    await locks.withLock('a', async (lock) => resource.write('later', lock));
    expect(resource.refused).toEqual([]);
  });

  it('of further names show no token, while they last, that the holds around them fall behind', async () => {
    const resource = new Resource();
    await ahead('b');
    await locks.withLock('a', async (outer) => {
      const inner = await locks.acquire(['a', 'b']);
      resource.write('inner', inner);
      resource.write('outer beside it', outer);
      await inner.release();
      await ahead('b');
      await locks.withLock('z', async (between) => {
        await locks.withLock(['a', 'b', 'z'], async (innermost) => {
          resource.write('innermost', innermost);
          resource.write('between', between);
          resource.write('outermost', outer);
        });
      });
    });
    expect(resource.refused).toEqual([]);
  });

  it('of further names, one in another, show one token to all that each of them protects', async () => {
    const resources = { c: new Resource(), d: new Resource(), e: new Resource() };
    await ahead('d', 10);
    await ahead('e', 30);
    await locks.withLock('c', async (outer) => {
      await locks.withLock(['c', 'd'], async (inner) => {
        resources.d.write('inner', inner);
        await locks.withLock(['d', 'e'], async (innermost) => {
          resources.d.write('innermost', innermost);
          resources.e.write('innermost', innermost);
        });
        resources.c.write('inner', inner);
        resources.d.write('inner after', inner);
      });
      resources.c.write('outer', outer);
    });
    for (const name of ['c', 'd', 'e'] as const) {
      await two.locks.withLock(name, async (lock) => resources[name].write(`next ${name}`, lock));
    }
    expect([resources.c.refused, resources.d.refused, resources.e.refused]).toEqual([[], [], []]);
  });

  it('keep one token through re-entry of one name of several', async () => {
    await ahead('g');
    const holder = await two.locks.acquire('g');
    const several = locks.withLock(['f', 'g'], async (outer) => [
      outer.fencingToken,
      await locks.withLock('f', async (inner) => inner.fencingToken),
      await locks.withLock('g', async (inner) => inner.fencingToken),
    ]);
    await eventually(async () => ((await locks.inspect('g'))?.waiting ?? 0) > 0);
    await holder.release();
    expect(new Set(await several).size).toBe(1);
  });

  it.each([['own'], [['free', 'own']]])('that must not re-enter are refused at once: %j', async (names) => {
    await locks.withLock('own', async () => {
      const options = { reentrant: false, wait: 30_000 };
      const error: unknown = await locks.withLock(names, options, async () => {}).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockTimeoutError);
      expect((error as Error).message).toMatch(/inside of the hold of "own".*leave "reentrant: false" out/);
      expect(await locks.tryAcquire(names, { reentrant: false })).toBeNull();
      expect(await locks.isLocked('free')).toBe(false);
    });
  });

  it('that must not re-enter wait where the hold belongs to others', async () => {
    const held = await two.locks.acquire('theirs');
    await locks.withLock('mine', async () => {
      const waiting = locks.withLock('theirs', { reentrant: false }, async () => 'entered');
      await eventually(async () => (await locks.inspect('theirs'))?.waiting === 1);
      await held.release();
      expect(await waiting).toBe('entered');
    });
  });
});

describe.each(['redis', 'memory'] as const)('a listener of a lost lock on %s', (kind) => {
  let app: LockApp;
  let locks: LockService;

  beforeEach(async () => {
    app = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    locks = app.locks;
  });
  afterEach(() => app.close());

  const onAbort = <T>(lock: Lock, listener: () => T) =>
    new Promise<T>((resolve) => lock.signal.addEventListener('abort', () => resolve(listener())));

  /** Runs `during` while a request that holds "account" has just taken one more lock, whose end is watched. */
  async function whileAccountIsHeld(during: () => Promise<void>): Promise<void> {
    const leave = new Gate();
    const inside = new Gate();
    const request = locks.withLock('account', async () => {
      const inner = await locks.acquire('invoice', RENEWED_OFTEN);
      inside.open();
      await leave.opened;
      await inner.release();
    });
    await inside.opened;
    await during();
    leave.open();
    await request;
  }

  it('does not enter the scope of a request that set the timer', async () => {
    await whileAccountIsHeld(async () => {
      const lock = await locks.acquire('order', { maxHold: 300 });
      const listener = async () => ({ current: locks.current(), entered: await locks.tryAcquire('account') });
      const seen = await onAbort(lock, listener);
      expect(seen).toEqual({ current: undefined, entered: null });
    });
  });

  it('runs inside of the lock that was lost, and of what is around that', async () => {
    await whileAccountIsHeld(async () => {
      let seen: unknown;
      const result = locks.withLock('around', () =>
        locks.withLock('lost', { maxHold: 300 }, async (lock) => {
          const current = onAbort(lock, () => locks.current()?.keys);
          const nested = onAbort(lock, () => locks.withLock('around', async ({ keys }) => keys));
          seen = [await current, await nested];
        }),
      );
      await expect(result).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'maxHold' });
      expect(seen).toEqual([['lost'], ['around']]);
    });
  });

  it('sees the holder, whichever code frees the lock or looks at it first', async () => {
    const seen: (readonly string[] | undefined)[] = [];
    const left = new Gate();
    const hold = locks.withLock('forced', async (lock) => {
      lock.signal.addEventListener('abort', () => seen.push(locks.current()?.keys));
      await left.opened;
    });
    await locks.withLock('other', async () => {
      await locks.forceRelease('forced');
    });
    left.open();
    await expect(hold).rejects.toMatchObject({ reason: 'taken' });
    expect(seen).toEqual([['forced']]);
  });

  it('keeps the storages of the application as they were where the signal was asked for', async () => {
    const requests = new AsyncLocalStorage<string>();
    const armed = await requests.run('first', () => locks.acquire('armed', RENEWED_OFTEN));
    const seen = await requests.run('second', async () => {
      const lock = await locks.acquire('stored', { maxHold: 300 });
      return onAbort(lock, () => requests.getStore());
    });
    expect(seen).toBe('second');
    await armed.release();
  });
});

describe.each(['redis', 'memory'] as const)('what nobody needs any more on %s', (kind) => {
  let app: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    app = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    locks = app.locks;
  });
  afterAll(() => app.close());

  const warnings = (name: string) => app.logger.matching(new RegExp(`^Lock of .*"${name}".*dropped without release`));

  const told = (name: string) =>
    eventually(
      async () => {
        await collectGarbage();
        return warnings(name)[0];
      },
      { within: 20_000 },
    );

  async function forgetToRelease(key: string | string[]): Promise<void> {
    const lock = await locks.acquire(key, { ttl: 3_000 });
    lock.assertHeld();
    lock.signal.addEventListener('abort', () => {});
  }

  it('is reported once, with name and place: a lock that was dropped without release; its lease ends', async () => {
    await forgetToRelease('forgotten');
    expect(await told('forgotten')).toMatch(/Acquired at:\n(.*\n)*.*forgetToRelease/);
    await eventually(async () => !(await locks.isLocked('forgotten')), { within: 10_000 });
    await collectGarbage();
    expect(warnings('forgotten')).toHaveLength(1);
    await (await locks.acquire('forgotten')).release();
  });

  it('is also reported for several names, in a request, and for a name that callers of this process wait for', async () => {
    await new AsyncResource('request').runInAsyncScope(() => forgetToRelease(['left', 'right']));
    const waiting = locks.acquire('left', { wait: 20_000 });
    expect(await told('right')).toContain('"left", "right"');
    await (await waiting).release();
  });

  it('is renewed while it is referenced, and not reported: a lock', async () => {
    const lock = await locks.acquire('kept', RENEWED_OFTEN);
    for (let times = 0; times < 5; times++) {
      await collectGarbage();
      await renewedAgain(lock);
    }
    expect(lock.held).toBe(true);
    await lock.release();
    await collectGarbage();
    expect(warnings('kept')).toEqual([]);
  });

  it('is renewed, and not told, where the application releases by name: a lock whose Lock nobody keeps', async () => {
    const other = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    const byName = async (name: string, work: () => Promise<void>) => {
      await other.locks.acquire(name, RENEWED_OFTEN);
      await work();
      await other.locks.release(name);
    };
    await byName('first', async () => {});
    await byName('second', async () => {
      const end = async () => performance.now() + ((await other.locks.inspect('second'))?.ttl ?? 0);
      for (let times = 0; times < 5; times++) {
        await collectGarbage();
        const before = await end();
        await eventually(async () => (await end()) > before + RENEWED_OFTEN.renew.interval / 2);
      }
    });
    expect(other.logger.matching(/dropped without release/)).toEqual([]);
    await other.close();
  });

  it('is garbage-collected: each run of a job that schedules its next run from inside of the lock', async () => {
    const runs: WeakRef<Lock>[] = [];
    await new Promise<void>((resolve, reject) => {
      const job = async (): Promise<void> => {
        await locks.withLock('job', async (lock) => {
          runs.push(new WeakRef(lock));
          if (runs.length < 60) setImmediate(() => void job().catch(reject));
          else resolve();
          void lock.signal;
        });
      };
      void job().catch(reject);
    });
    await eventually(async () => {
      await collectGarbage();
      return runs.filter((run) => run.deref()).length <= 5;
    });
  });
});

@Injectable()
class Streams {
  made = 0;

  @DistributedLock('stream')
  numbers(count: number): Observable<number> {
    return new Observable((subscriber) => {
      for (let number = 0; number < count && !subscriber.closed; number += 1) {
        this.made += 1;
        subscriber.next(number);
      }
      subscriber.complete();
    });
  }

  @DistributedLock('endless')
  endless(): Observable<number> {
    return NEVER;
  }

  @DistributedLock('later')
  async later(make: () => unknown): Promise<unknown> {
    return make();
  }
}

describe('a method with a lock', () => {
  let module: TestingModule;
  let streams: Streams;
  let locks: LockService;

  beforeEach(async () => {
    module = await Test.createTestingModule({
      imports: [RedisLockModule.forRoot({ backend: memory() })],
      providers: [Streams],
    }).compile();
    await module.init();
    streams = module.get(Streams);
    locks = module.get(LockService);
  });
  afterEach(() => module.close());

  it.each([1, 3])('that emits all at once stops after take(%d), and gives the lock back', async (count) => {
    const values = await firstValueFrom(streams.numbers(1_000_000).pipe(take(count), toArray()));
    expect(values).toEqual(Array.from({ length: count }, (_, index) => index));
    expect(streams.made).toBe(count);
    await eventually(async () => !(await locks.isLocked('stream')));
  });

  it('gives the lock back when its reader leaves at any moment', async () => {
    for (let turns = 0; turns < 12; turns += 1) {
      const reader = streams.endless().subscribe();
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      reader.unsubscribe();
    }
    await eventually(async () => !(await locks.isLocked('endless')));
  });

  it('that emits all at once is read to its end by a subscriber that wants all', async () => {
    expect(await firstValueFrom(streams.numbers(5).pipe(toArray()))).toEqual([0, 1, 2, 3, 4]);
    await eventually(async () => !(await locks.isLocked('stream')));
  });

  it.each<[string, () => unknown]>([
    [
      'an async generator',
      async function* () {
        yield 1;
      },
    ],
    [
      'a generator',
      function* () {
        yield 1;
      },
    ],
    ['an async iterable', () => ({ [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: 1 }) }) })],
    ['a web stream', () => new ReadableStream()],
    ['a Response', () => new Response('text')],
  ])('does not resolve to %s, which is read after the lock', async (what, make) => {
    await expect(streams.later(make)).rejects.toThrow(LockConfigError);
    const kind = what === 'a Response' ? what : 'an iterable';
    await expect(streams.later(make)).rejects.toThrow(
      `Streams.later resolved to ${kind}, which its caller reads after the lock`,
    );
    expect(await locks.isLocked('later')).toBe(false);
  });

  it.each<[string, unknown]>([
    ['a list', [1]],
    ['a map', new Map()],
    ['text', 'text'],
    ['null', null],
    ['a Response without a body', new Response(null)],
  ])('resolves to %s', async (_what, value) => {
    expect(await streams.later(() => value)).toBe(value);
  });
});

it('a client that is inside of a MULTI of its owner is named as the cause', async () => {
  const redisServer = await startRedisServer();
  const client = new Redis(redisServer.url);
  try {
    await using app = await startLockApp({ redis: client, cache: false });
    await app.locks.withLock('warm', async () => {});
    await client.multi({ pipeline: false });
    let ran = false;
    const call = app.locks.withLock('queued', { wait: 0 }, async () => void (ran = true));
    await expect(call).rejects.toThrow(LockBackendError);
    await expect(app.locks.inspect('queued')).rejects.toThrow(/MULTI.*client\.duplicate\(\)/);
    expect(ran).toBe(false);
    await client.exec();
    await eventually(async () => !(await app.locks.isLocked('queued')));
  } finally {
    client.disconnect();
    await redisServer.stop();
  }
});
