import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { setImmediate } from 'node:timers/promises';
import {
  BackendRefusal,
  DistributedLock,
  fixedDelay,
  IdempotencyService,
  memory,
  RateLimiter,
  SemaphoreService,
} from 'nest-redis-lock';
import type {
  LockBackend,
  LockStore,
  ModuleContext,
  Pending,
  RenewAnswer,
  RenewRequest,
} from 'nest-redis-lock/backend';
import { testServices, wire } from 'nest-redis-lock/testing';
import type { PrimitiveStoreProvider } from '../../../lib/contracts/primitive-stores.js';
import { eventually } from '../../support/eventually.js';
import { answering, lying, lyingSemaphores } from '../../support/lying-backend.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';
import { busy, grantMessage, ScriptedBackend } from '../../support/scripted-backend.js';
import { primitivesWith } from '../../support/primitives-with.js';
import { replacing, withMembers } from '../../support/open-backend.js';

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
    // Its repetitions end with the lease.
    if (method === 'release') await app.locks.withLock(names, { ttl: 1_000 }, async () => {});
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

/** What looks like a promise, and is none. */
const throwing = new Proxy({}, { get: (_, name) => (name === 'then' ? () => assert.fail('it throws') : undefined) });

describe('a renewal that is none', () => {
  const ANSWERS = {
    'no list': () => undefined,
    'the promise of a list': async () => [],
    'too few': (sent: Sent) => sent.slice(1),
    'too many': (sent: Sent) => [...sent, sent[0]],
    'places without an answer': ({ length }: Sent) => Array.from({ length }),
    'what throws': (sent: Sent) => sent.map(() => throwing),
    'nothing, later': (sent: Sent) => sent.map(async () => null),
    'a text, later': (sent: Sent) => sent.map(async () => 'renewed'),
    'another status': (sent: Sent) => sent.map(async () => ({ status: 'yes', remaining: 300 })),
    'no number': (sent: Sent) => sent.map(async () => ({ status: 'renewed', remaining: 300n })),
  };
  type Sent = readonly Pending<RenewAnswer>[];

  /** Its renewals are none from when it `lies`. */
  function renewing(answer: (sent: Sent) => unknown) {
    const state = { lies: false };
    const backend = lying((honest) => ({
      renew: (requests: readonly RenewRequest[]) => {
        if (!state.lies) return honest.renew(requests);
        return answer(requests.map(() => Promise.resolve({ status: 'renewed', remaining: 300 }))) as Sent;
      },
    }));
    return Object.assign(state, { backend });
  }

  it.concurrent.each(Object.entries(ANSWERS))('keeps no lock beyond its lease: %s', async (_, answer) => {
    const store = renewing(answer);
    await using app = await startLockApp({ backend: store.backend });
    for (const names of ['one', ['one', 'two']]) {
      const lock = await app.locks.acquire(names, { ttl: 300 });
      store.lies = true;
      await eventually(() => lock.signal.aborted);
      expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
      store.lies = false;
      await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    }
  });

  it.concurrent.each(Object.entries(ANSWERS))('ends no other lock, and is asked for again: %s', async (_, answer) => {
    const store = renewing(answer);
    await using app = await startLockApp({ backend: store.backend });
    const first = await app.locks.acquire(['one', 'two'], { ttl: 60_000, renew: { interval: 50 } });
    store.lies = true;
    const second = await app.locks.acquire('three', { ttl: 300 });
    await eventually(() => second.signal.aborted || second.remaining() < 150);
    store.lies = false;
    const trusted = performance.now() + first.remaining();
    await eventually(() => performance.now() + first.remaining() > trusted);
    await first.release();
    // It may have been lost; if not, the application would wait for its end.
    await second.release().catch(() => {});
  });

  it.concurrent.each(Object.entries(ANSWERS))('is an error of the call that asked for it: %s', async (_, answer) => {
    const store = renewing(answer);
    await using app = await startLockApp({ backend: store.backend, commandTimeout: 100 });
    const lock = await app.locks.acquire('one');
    store.lies = true;
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await lock.release();
  });
});

it.each(['acquire', 'release', 'mint', 'keep'] as const)(
  'a promise whose `then` throws fails the call: %s',
  async (call) => {
    let lies = true;
    const backend = lying((honest) => ({
      [call]: (request: never) => (lies ? throwing : honest[call]!(request)),
    }));
    await using app = await startLockApp({ backend, commandTimeout: 100 });
    const options = { ttl: 300, wait: 100, ...(call === 'keep' && { minHold: 50 }) };
    const work = async () => setImmediate();
    await Promise.allSettled(Array.from({ length: 3 }, () => app.locks.withLock('one', options, work)));
    lies = false;
    await app.locks.withLock('one', { wait: '30s' }, work);
  },
);

it('a release that is answered by something else is repeated', async () => {
  let lies = true;
  const backend = lying((honest) => ({
    release: (request) => (lies ? Promise.resolve({} as never) : honest.release(request)),
  }));
  await using app = await startLockApp({ backend });
  await app.locks.withLock('one', async () => {});
  expect(await app.locks.isLocked('one')).toBe(true);
  lies = false;
  await eventually(async () => !(await app.locks.isLocked('one')));
});

it.each([Number.NaN, -Infinity, 5n, null])(
  'a name that is busy for %s ms ends the wait of nobody later',
  async (remaining) => {
    const answer = async () => ({ status: 'busy', owner: 'other:1', remaining }) as never;
    await using app = await startLockApp({ backend: lying((honest) => answering(honest, answer)) });
    for (const retry of [undefined, fixedDelay(10)]) {
      const taking = app.locks.acquire('one', { wait: 100, ...(retry && { retry }) });
      await expect(taking).rejects.toMatchObject({ code: expect.stringMatching(/LOCK_(BACKEND|TIMEOUT)/) as string });
    }
  },
);

it('a count of waiters that is none fails the call before anybody has the lock', async () => {
  const backend = lying((honest) =>
    answering(honest, async (answered) => ({ ...(await answered), waiting: 1n }) as never),
  );
  await using app = await startLockApp({ backend });
  let ran = false;
  const running = app.locks.withLock('one', { wait: 100 }, async () => void (ran = true));
  await expect(running).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  expect(ran).toBe(false);
});

it.each([undefined, null, {}, { names: [1], cursor: '' }])(
  'a page of names that is none fails the call: %j',
  async (page) => {
    await using app = await startLockApp({ backend: lying(() => ({ list: async () => page as never })) });
    await expect(app.locks.list()).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  },
);

it('a store that cannot be changed works as any other', async () => {
  const inner = memory();
  const open = (module: ModuleContext): LockStore => {
    const honest = inner.open(module);
    return Object.freeze<LockStore>({
      acquire: (request) => honest.acquire(request),
      renew: (requests) => honest.renew(requests),
      release: (request) => honest.release(request),
      mint: (request) => honest.mint(request),
      inspect: (request) => honest.inspect(request),
    });
  };
  await using app = await startLockApp({ backend: withMembers(inner, { open }) });
  await app.locks.withLock('one', async () => {});
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
  await setImmediate();
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

const NO_DIAGNOSIS = {
  throws: () => assert.fail('it throws'),
  'is a text': () => 'the server is down',
  'is a promise that rejects': async () => assert.fail('it rejects'),
  'has no message': () => Object.defineProperty(new Error(), 'message', { get: () => assert.fail('no message') }),
};

it.each(Object.entries(NO_DIAGNOSIS))('a diagnosis that %s keeps no caller waiting', async (_, diagnose) => {
  let answer: () => Promise<never> = async () => assert.fail('down');
  const backend = lying(() => ({ diagnose: diagnose as never, acquire: () => answer() }));
  await using app = await startLockApp({ backend, commandTimeout: 100 });
  await expect(app.locks.tryAcquire('one')).rejects.toMatchObject({ code: 'LOCK_BACKEND', message: /failed: down/ });
  answer = () => new Promise(() => {});
  await expect(app.locks.tryAcquire('one')).rejects.toMatchObject({
    code: 'LOCK_BACKEND',
    message: /no answer within/,
  });
});

it('an application ends although its backend does not close', async () => {
  const backend = lying(() => ({ close: () => new Promise<void>(() => {}) }));
  const app = await startLockApp({ backend, commandTimeout: 10 });
  await app.close();
  expect(app.logger.matching(/close failed: no answer within 50 ms/)).toHaveLength(1);
});

it('an application waits for its other backends to close although one has failed to', async () => {
  const closed = new Gate();
  const failing = lying(() => ({ close: async () => assert.fail('no way to close') }));
  const slow = lying(() => ({ close: () => closed.opened }));
  const app = await startLockApp({ backend: failing, backends: { slow } });
  const closing = app.close();
  let over = false;
  void closing.then(() => (over = true));
  await setImmediate();
  await setImmediate();
  expect(over).toBe(false);
  closed.open();
  await closing;
  expect(app.logger.matching(/no way to close/)).toHaveLength(1);
  expect(app.locks.closed).toBe(true);
});

it('an application closes a backend whose store fails to stop', async () => {
  let closed = 0;
  const close = async () => void (closed += 1);
  const open = (module: ModuleContext) => withMembers(memory().open(module), { stop: () => assert.fail('no way') });
  const app = await startLockApp({ backend: withMembers(memory(), { open, close }) });
  await app.close();
  expect(closed).toBe(1);
  expect(app.logger.matching(/no way/)).toHaveLength(1);
});

it('an application closes the stores of its other primitives although one fails to close', async () => {
  const closing = (close: () => void) => {
    const honest = memory() as LockBackend & PrimitiveStoreProvider;
    const opened = (prefix: string | undefined) => withMembers(honest.openPrimitiveStores(prefix), { close });
    return withMembers(honest, { openPrimitiveStores: opened });
  };
  let closed = 0;
  const [failing, other] = [closing(() => assert.fail('no way')), closing(() => void (closed += 1))];
  const app = await startLockApp({ backend: failing, backends: { other } });
  const semaphores = app.app.get(SemaphoreService);
  for (const each of [{}, { backend: 'other' }]) {
    await (await semaphores.acquire('one', { permits: 1, ...each })).release();
  }
  await app.close();
  expect(closed).toBe(1);
  expect(app.logger.matching(/no way/)).toHaveLength(1);
});

it('a start that fails says why, also where its backend then fails to close', async () => {
  const backend = withMembers(memory(), {
    ping: async () => assert.fail('no server'),
    close: async () => assert.fail('no way'),
  });
  await expect(startLockApp({ backend, failFast: true })).rejects.toThrow('no server');
});

it('a backend that opens its store later, in vain, ends the start alone', async () => {
  const open = async () => assert.fail('no server');
  await expect(startLockApp({ backend: withMembers(memory(), { open }) })).rejects.toThrow(/opened no store/);
  await setImmediate();
});

const MESSAGES = [undefined, null, 5, {}];

it.each(MESSAGES)('a message that is none is as if it were lost: %j', async (message) => {
  const modules: ModuleContext[] = [];
  const hear = (module: ModuleContext) => (modules.push(module), module);
  await using app = await startLockApp({ backend: lying(() => ({}), hear) });
  const lock = await app.locks.acquire('one');
  const waiting = app.locks.acquire('one');
  for (const module of modules) module.message(message as never);
  await lock.release();
  await (await waiting).release();
});

it.each([{}, { tokens: {} }, { tokens: { first: 2_000, count: 1 }, claim: '1s' }])(
  'a grant that a message tells only in part is as if it were lost: %j',
  async (part) => {
    const backend = new ScriptedBackend();
    await using app = await startLockApp({ backend });
    const waiting = app.locks.acquire('one');
    await (await backend.take('enqueue')).answer(busy());
    const asked = await backend.take('enqueue');
    await asked.answer(busy());
    await backend.tell({ kind: 'grant', ticket: asked.ticket, name: 'one', ...part } as never);
    await backend.tell(grantMessage(asked.ticket, 'one'));
    expect((await waiting).owner).toBe(asked.ticket);
    backend.giveUp();
  },
);
