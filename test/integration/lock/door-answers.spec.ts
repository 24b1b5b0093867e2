import { AsyncLocalStorage } from 'node:async_hooks';
import { BackendRefusal, DistributedLock, IdempotencyService, RateLimiter, SemaphoreService } from 'nest-redis-lock';
import type { ModuleContext } from 'nest-redis-lock/backend';
import { testServices, wire } from 'nest-redis-lock/testing';
import { answering, lying, lyingSemaphores } from '../../support/lying-backend.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';
import { primitivesWith } from '../../support/primitives-with.js';
import { replacing } from '../../support/open-backend.js';

describe('what is no fencing token', () => {
  const OFFERED = [Number.NaN, 1.5, 2 ** 53 - 5, 2 ** 53, Infinity];

  it.each(OFFERED)('has no holder: %s', async (first) => {
    const backend = lying((honest) =>
      answering(honest, async (answered) => {
        const answer = await answered;
        return answer.status === 'granted' ? { ...answer, tokens: { first, count: 10 } } : answer;
      }),
    );
    await using app = await startLockApp({ backend });
    const tokens = [0];
    for (const names of ['one', 'one', ['one', 'two'], 'two', 'one']) {
      const lock = await app.locks.acquire(names);
      tokens.push(lock.fencingToken);
      await lock.release();
    }
    expect(tokens.filter((token, index) => !Number.isSafeInteger(token) || token <= (tokens[index - 1] ?? -1))).toEqual(
      [],
    );
    expect(app.logger.matching(/a whole number below 2\^53: delete the count/)).not.toHaveLength(0);
  });

  it.each(OFFERED)('is an error where the store mints no others: %s', async (first) => {
    const backend = lying((honest) => ({
      ...answering(honest, async (answered) => {
        const answer = await answered;
        return answer.status === 'granted' ? { ...answer, tokens: { first, count: 10 } } : answer;
      }),
      mint: async () => ({ first, count: 10 }),
    }));
    await using app = await startLockApp({ backend });
    await expect(app.locks.acquire('one', { wait: 100 })).rejects.toThrow(/whole number below 2\^53/);
  });

  it.each(OFFERED)('is no permit: %s', async (fencingToken) => {
    const backend = lyingSemaphores((honest) => ({
      acquire: async (request) => {
        const answer = await honest.acquire(request);
        return answer.status === 'granted' ? { ...answer, fencingToken } : answer;
      },
    }));
    await using app = await startLockApp({ backend });
    const taking = app.app.get(SemaphoreService).acquire('three', { permits: 3, wait: 100 });
    await expect(taking).rejects.toThrow(/whole number below 2\^53/);
  });
});

it.each(['acquire', 'acquireSeveral', 'release', 'inspect'] as const)(
  '%s that returns nothing fails alone',
  async (method) => {
    await using app = await startLockApp({ backend: lying(() => ({ [method]: () => undefined })) });
    const names = method === 'acquireSeveral' ? ['one', 'two'] : 'one';
    if (method === 'release') await app.locks.withLock(names, async () => {});
    else if (method === 'inspect')
      await expect(app.locks.inspect('one')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    else await expect(app.locks.tryAcquire(names)).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  },
);

it('an answer that is none fails the call', async () => {
  const nothing = async () => undefined as never;
  await using app = await startLockApp({ backend: lying(() => ({ acquireSeveral: nothing })) });
  await expect(app.locks.tryAcquire(['one', 'two'])).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  const backend = lyingSemaphores(() => ({ acquire: nothing }));
  await using other = await startLockApp({ backend });
  const taking = other.app.get(SemaphoreService).acquire('three', { permits: 3, wait: 100 });
  await expect(taking).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
});

const NONE = [undefined, null, {}, 'granted', { status: 'granted' }, { status: 'granted', remaining: 1_000 }];

it.each(NONE)('an answer to a request for a lock that is none fails the call: %j', async (answer) => {
  const backend = lying((honest) => answering(honest, async () => answer as never));
  await using app = await startLockApp({ backend });
  for (const names of ['one', ['one', 'two']]) {
    await expect(app.locks.tryAcquire(names)).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await expect(app.locks.acquire(names, { wait: 200 })).rejects.toMatchObject({ code: /LOCK_(BACKEND|TIMEOUT)/ });
  }
});

it.each(NONE)('a decorated method does not run where its store answers %j', async (answer) => {
  const runs: string[] = [];
  class Orders {
    @DistributedLock('order:<0>')
    async ship(id: string): Promise<void> {
      runs.push(id);
    }
  }
  const backend = lying((honest) => answering(honest, async () => answer as never));
  const orders = wire(new Orders(), testServices({ backend, defaults: { wait: 0 } }));
  await expect(orders.ship('7')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  expect(runs).toEqual([]);
});

it('a store that tells of a loss in the async context of another caller calls nobody there', async () => {
  const modules: ModuleContext[] = [];
  const backend = lying(
    () => ({}),
    (module) => (modules.push(module), module),
  );
  await using app = await startLockApp({ backend });
  const callers = new AsyncLocalStorage<string>();
  const heard = await callers.run('holder', async () => {
    const lock = await app.locks.acquire('one');
    return new Promise((resolve) => {
      lock.signal.addEventListener('abort', () => resolve(callers.getStore()));
      callers.run('another caller', () => {
        for (const { lost } of modules) lost([lock.owner], new Error('the session has ended'));
      });
    });
  });
  expect(heard).toBe('holder');
});

it.each(NONE)('one that comes after its caller gave up ends nothing else: %j', async (answer) => {
  const gate = new Gate();
  const backend = lying((honest) =>
    answering(honest, async () => {
      await gate.opened;
      return answer as never;
    }),
  );
  await using app = await startLockApp({ backend, commandTimeout: 50 });
  await expect(app.locks.tryAcquire('one')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  gate.open();
  await new Promise(setImmediate);
});

it('a store that has lost its semaphores is asked for permits with tokens above those seen', async () => {
  const asked: number[] = [];
  const backend = lyingSemaphores((honest) => ({
    acquire: async (request) => {
      const answer = await honest.acquire(request);
      asked.push(request.leastToken ?? 0);
      return answer;
    },
  }));
  await using app = await startLockApp({ backend });
  const semaphores = app.app.get(SemaphoreService);
  const permit = await semaphores.acquire('three', { permits: 3 });
  await permit.release();
  await (await semaphores.tryAcquire('three', { permits: 3 }))?.release();
  expect(asked[1]).toBeGreaterThan(permit.fencingToken);
});

describe('a store of rate limits', () => {
  const limit = { limit: 1, per: '1h' } as const;

  it.each([undefined, null])('that answers %s lets nobody pass', async (answer) => {
    const nothing = async () => answer as never;
    const backend = primitivesWith({ rateLimits: { take: nothing, peek: nothing, hit: nothing } });
    await using app = await startLockApp({ backend });
    const limiter = app.app.get(RateLimiter);
    for (const call of [
      limiter.take('k', { ...limit, onFailure: 'closed' }),
      limiter.peek('k', { ...limit, onFailure: 'closed' }),
    ])
      await expect(call).rejects.toThrow(`of the rate limit "k" failed: it answered ${answer}`);
    const throttler = limiter.throttlerStorage({ onFailure: 'closed' });
    await expect(throttler.increment('k', 1_000, 1, 0, 'default')).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
    const alone = { ...limit, onFailure: 'local' } as const;
    expect([await limiter.take('p', alone), await limiter.take('p', alone)]).toMatchObject([
      { allowed: true, decidedBy: 'process' },
      { allowed: false, decidedBy: 'process' },
    ]);
  });

  it('gives a process no more units than it asked for', async () => {
    let asked = 0;
    const take = async () => ({ granted: 1_000, used: [0], asked: (asked += 1) });
    await using app = await startLockApp({ backend: primitivesWith({ rateLimits: { take } }) });
    const share = { limit: 1_000, per: '1h', localShare: 2 } as const;
    for (let call = 0; call < 10; call++) await app.app.get(RateLimiter).take('k', share);
    expect(asked).toBeGreaterThanOrEqual(5);
  });
});

it('a store that refuses for good to keep a result is not asked again for a lease', async () => {
  let asked = 0;
  const keep = async (): Promise<never> => {
    asked += 1;
    throw new BackendRefusal('The store is read-only; write to its primary');
  };
  const backend = replacing(primitivesWith({ results: { keep, leave: keep } }), () => ({ label: undefined }));
  await using app = await startLockApp({ backend });
  const running = app.app.get(IdempotencyService).run('pay', { lease: '1h' }, async () => 'paid');
  await expect(running).rejects.toMatchObject({ code: 'IDEMPOTENCY_RESULT' });
  expect(asked).toBe(1);
});
