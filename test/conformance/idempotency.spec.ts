import { Readable } from 'node:stream';
import { ConflictException, HttpException } from '@nestjs/common';
import {
  IdempotencyConflictError,
  IdempotencyResultError,
  IdempotencyRunningError,
  IdempotencyService,
  type IdempotentRunOptions,
  instancesOf,
  LockLostError,
  type LockService,
  LockTimeoutError,
  PrimitiveConfigError,
  PrimitiveKeyError,
} from 'nest-redis-lock';
import type { IdempotencyStore } from '../../lib/contracts/primitive-stores.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { eachIdempotency, key, one, others, service, startAnother, two } from './each-primitive-backend.js';

class Order {
  constructor(readonly id: number) {}

  get title(): string {
    return `order ${this.id}`;
  }
}

const never = () => Promise.reject(new Error('the method ran again'));
const returning = (value: unknown) => () => Promise.resolve(value);
const failing = (reason: unknown) => () => Promise.reject(reason);
const failsItself = () => {
  throw new TypeError('no such property');
};

/** What a repeat in another process gets. */
const repeat = (options: IdempotentRunOptions = {}) => others.run(key, options, never);

/** Begins a call whose method waits for the gate. */
async function begin(options: IdempotentRunOptions = {}) {
  const [began, gate] = [new Gate(), new Gate()];
  const call = service.run(key, { lease: 10_000, ...options }, async () => {
    began.open();
    await gate.opened;
    return 'first';
  });
  await began.opened;
  return { call, gate };
}

eachIdempotency(() => {
  describe('a result', () => {
    it('is kept for repeats, here and in another process', async () => {
      const result = { id: 7, at: new Date(0), parts: new Map([['a', 1n]]) };
      expect(await service.run(key, {}, returning(result))).toBe(result);
      expect(await repeat()).toEqual(result);
      expect(await service.run(key, {}, never)).toEqual(result);
    });

    it.each([undefined, null, 0, '', Buffer.from('bytes'), new Date(5), 10n, [undefined]])(
      'may be %p',
      async (value) => {
        await service.run(key, {}, returning(value));
        expect(await repeat()).toEqual(value);
      },
    );

    it('is written and read by the serializer that is given', async () => {
      const serializer = {
        serialize: (value: unknown) => `<${String(value)}>`,
        deserialize: (data: Buffer) => data.toString(),
      };
      await service.run(key, { serializer }, returning('text'));
      expect(await repeat({ serializer })).toBe('<text>');
    });

    it('is an instance of its class for a repeat with "revive", and otherwise warned of', async () => {
      await service.run(key, {}, returning(new Order(7)));
      expect(await repeat({ revive: instancesOf(Order) })).toEqual(new Order(7));
      // Nest has one logger for all applications of a process.
      const warnings = [one, two].flatMap(({ logger }) => logger.matching(/instance of Order/));
      expect(warnings).toHaveLength(1);
    });

    it('ends with its ttl, after which the method runs again', async () => {
      await service.run(key, { ttl: 1 }, returning('first'));
      expect(
        await eventually(() => service.run(key, { ttl: 1 }, returning('second')).then((it) => it === 'second')),
      ).toBe(true);
    });
  });

  it('has no functions of a result for repeats', async () => {
    expect(await service.run(key, {}, async () => ({ total: 1, print: () => {} }))).toHaveProperty('print');
    expect(await repeat()).toEqual({ total: 1, print: undefined });
  });

  describe('a result that cannot be kept', () => {
    it.each([
      ['a stream', () => Readable.from([])],
      ['an iterator', () => new Map([['a', 1]]).keys()],
      ['a function', () => () => 1],
      ['a symbol inside', () => ({ symbol: Symbol('s') })],
      ['a promise inside', () => ({ promise: Promise.resolve() })],
      ['more than maxBytes', () => 'x'.repeat(101)],
    ])('%s rejects, and repeats do not run the method again', async (_, make) => {
      const options = { maxBytes: 100 };
      const first = await service.run(key, options, async () => make()).catch((error: unknown) => error);
      expect(first).toBeInstanceOf(IdempotencyResultError);
      expect(first).toMatchObject({ mayRunAgain: false, statusCode: 500, keys: [key] });
      const second = await repeat().catch((error: unknown) => error);
      expect(second).toBeInstanceOf(IdempotencyResultError);
      expect((second as Error).message).toBe((first as Error).message);
    });

    it('is one that the serializer of a repeat cannot read', async () => {
      await service.run(key, {}, returning('text'));
      const serializer = {
        serialize: String,
        deserialize: () => {
          throw new Error('another format');
        },
      };
      await expect(repeat({ serializer })).rejects.toThrow(/cannot be read \(another format\)/);
    });
  });

  describe('an error', () => {
    it('is not kept: the next call runs the method, as attempt 2', async () => {
      const error = new Error('the provider is away');
      await expect(service.run(key, {}, failing(error))).rejects.toBe(error);
      expect(await others.run(key, {}, async ({ attempt }) => attempt)).toBe(2);
    });

    it('of HTTP that keepErrors keeps is thrown to repeats with its status and body', async () => {
      const error = new ConflictException({ message: 'out of stock', sku: 'a' });
      const keepErrors = (each: unknown) => each instanceof HttpException;
      await expect(service.run(key, { keepErrors }, failing(error))).rejects.toBe(error);
      const repeated = (await repeat().catch((each: unknown) => each)) as HttpException;
      expect(repeated).toBeInstanceOf(ConflictException);
      expect([repeated.getStatus(), repeated.getResponse()]).toEqual([409, { message: 'out of stock', sku: 'a' }]);
      expect([repeated.name, repeated.message]).toEqual(['ConflictException', 'out of stock']);
    });

    it.each([
      new HttpException('text', 409),
      new (class OutOfStock extends ConflictException {})('none left'),
      Object.assign(new HttpException('text', 409), { name: 'ConflictException' }),
    ])('of HTTP of another class is an HttpException for repeats: %p', async (thrown) => {
      await expect(service.run(key, { keepErrors: () => true }, failing(thrown))).rejects.toBe(thrown);
      const repeated = (await repeat().catch((each: unknown) => each)) as HttpException;
      expect(repeated.constructor).toBe(HttpException);
      expect([repeated.getStatus(), repeated.getResponse()]).toEqual([409, thrown.getResponse()]);
      expect([repeated.name, repeated.message]).toEqual([thrown.name, thrown.message]);
    });

    it.each([
      [Object.assign(new TypeError('odd'), { code: 'E_ODD' }), { name: 'TypeError', message: 'odd', code: 'E_ODD' }],
      ['text', 'text'],
    ])('of another kind that is kept is thrown to repeats: %p', async (thrown, expected) => {
      await expect(service.run(key, { keepErrors: () => true }, failing(thrown))).rejects.toBe(thrown);
      const repeated = await repeat().catch((each: unknown) => each);
      if (typeof expected === 'string') expect(repeated).toBe(expected);
      else expect(repeated).toMatchObject(expected);
    });
  });

  describe('an error that keepErrors names', () => {
    const keepErrors = () => true;

    it('is not kept once the lock is lost, because it may be a consequence of that', async () => {
      const error = new Error('the lock is gone');
      const lost = service.run(key, { keepErrors, lease: 2_000 }, async ({ lock }) => {
        await two.locks.forceRelease(`idempotency:${key}`);
        await eventually(() => lock.signal.aborted);
        throw error;
      });
      await expect(lost).rejects.toBe(error);
      expect(await others.run(key, {}, async ({ attempt }) => attempt)).toBe(2);
    });

    it('reaches the caller also if it cannot be kept, because another attempt has begun', async () => {
      const error = new Error('failed late');
      const lost = service.run(key, { keepErrors }, async () => {
        await two.locks.forceRelease(`idempotency:${key}`);
        await others.run(key, {}, async () => 'attempt 2');
        throw error;
      });
      await expect(lost).rejects.toBe(error);
      expect(await repeat()).toBe('attempt 2');
    });

    it('reaches the caller also if keepErrors throws', async () => {
      const error = new Error('failed');
      await expect(service.run(key, { keepErrors: failsItself }, failing(error))).rejects.toBe(error);
      expect(await others.run(key, {}, async ({ attempt }) => attempt)).toBe(2);
    });
  });

  describe('while the first call runs', () => {
    it('repeats wait, and get its result', async () => {
      const { call, gate } = await begin();
      const waiting = Array.from({ length: 20 }, (_, index) => (index % 2 ? others : service).run(key, {}, never));
      gate.open();
      expect(new Set([await call, ...(await Promise.all(waiting))])).toEqual(new Set(['first']));
    });

    it('a repeat with onRunning "throw" is refused at once, with a time to retry', async () => {
      const { call, gate } = await begin();
      const refused = await repeat({ onRunning: 'throw' }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(IdempotencyRunningError);
      expect(refused).toMatchObject({ statusCode: 409, code: 'IDEMPOTENCY_RUNNING', retryAfter: 1_000 });
      gate.open();
      await call;
      expect(await repeat({ onRunning: 'throw' })).toBe('first');
    });

    it('asks a repeat that waited long to come back within half a minute', async () => {
      const busy = new LockTimeoutError(['k'], { waited: 120_000, remaining: 90_000 });
      const locks = { withLock: () => Promise.reject(busy) } as unknown as LockService;
      const refused = new IdempotencyService(one.app.get(PrimitiveRuntime), locks).run(key, {}, never);
      await expect(refused).rejects.toMatchObject({ code: 'IDEMPOTENCY_RUNNING', retryAfter: 30_000 });
    });

    it('a repeat is refused after its wait', async () => {
      const { call, gate } = await begin();
      await expect(repeat({ wait: 50 })).rejects.toThrow(IdempotencyRunningError);
      gate.open();
      await call;
    });

    it('a signal ends the wait of a repeat', async () => {
      const { call, gate } = await begin();
      const given = new AbortController();
      const waiting = repeat({ signal: given.signal });
      given.abort(new Error('the client left'));
      await expect(waiting).rejects.toThrow('the client left');
      gate.open();
      expect(await call).toBe('first');
    });

    it('a call with its key inside of it is refused rather than waiting for itself', async () => {
      const nested = service.run(key, {}, () => service.run(key, { wait: Infinity }, never));
      await expect(nested).rejects.toThrow(IdempotencyRunningError);
    });

    it('an error of a lock inside of the method passes through', async () => {
      const held = await two.locks.acquire(`inner:${key}`, { ttl: 10_000 });
      const call = service.run(key, {}, () => one.locks.withLock(`inner:${key}`, { wait: 0 }, never));
      await expect(call).rejects.toThrow(expect.objectContaining({ code: 'LOCK_TIMEOUT' }));
      await held.release();
    });
  });

  describe('a fingerprint', () => {
    const mine = { fingerprint: { sku: 'a', count: 1 } };
    const another = { fingerprint: { sku: 'a', count: 2 } };

    it('of another request is refused after the first has ended', async () => {
      await service.run(key, mine, returning('first'));
      const refused = await repeat(another).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(IdempotencyConflictError);
      expect(refused).toMatchObject({ statusCode: 422, code: 'IDEMPOTENCY_CONFLICT', keys: [key] });
      expect(await repeat({ fingerprint: { count: 1, sku: 'a' } })).toBe('first');
    });

    it('of another request is refused while the first runs, and after it failed', async () => {
      const { call, gate } = await begin(mine);
      await expect(repeat(another)).rejects.toThrow(IdempotencyConflictError);
      gate.open();
      await call;
      const failed = `${key}:failed`;
      await expect(service.run(failed, mine, failing(new Error('failed')))).rejects.toThrow('failed');
      await expect(others.run(failed, another, never)).rejects.toThrow(IdempotencyConflictError);
      expect(await others.run(failed, mine, async ({ attempt }) => attempt)).toBe(2);
    });

    it('is refused also where both began to wait before the first attempt was noted', async () => {
      const held = await two.locks.acquire(`idempotency:${key}`, { ttl: 10_000 });
      const calls = [service.run(key, mine, returning('first')), others.run(key, another, returning('second'))];
      await held.release();
      const settled = await Promise.allSettled(calls);
      expect(settled.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
      const [refused] = settled.filter((each) => each.status === 'rejected');
      expect(refused?.reason).toBeInstanceOf(IdempotencyConflictError);
    });

    it('that is missing fits any other', async () => {
      await service.run(key, mine, returning('first'));
      expect(await repeat()).toBe('first');
      await service.run(`${key}:without`, {}, returning('without'));
      expect(await others.run(`${key}:without`, mine, never)).toBe('without');
    });
  });

  describe('an attempt', () => {
    it('reaches the method as an argument and by current()', async () => {
      const told = await service.run(key, {}, async (attempt) => {
        await Promise.resolve();
        return [attempt.key, attempt.attempt, attempt.lock.held, service.current() === attempt];
      });
      expect(told).toEqual([key, 1, true, true]);
      expect(service.current()).toBeUndefined();
    });

    it('has a lock that is renewed and freed at its end, whatever the defaults of locks are', async () => {
      const defaults = { renew: { interval: '15s' }, maxHold: '1s', minHold: '5m' } as const;
      await using limited = await startAnother({ defaults });
      const error = new Error('failed');
      const failed = limited.app.get(IdempotencyService).run(key, { lease: '10s' }, async ({ lock }) => {
        expect(lock.remaining()).toBeGreaterThan(1_000);
        throw error;
      });
      await expect(failed).rejects.toBe(error);
      expect(await service.run(key, { onRunning: 'throw' }, async ({ attempt }) => attempt)).toBe(2);
    });

    it('that lost its lock returns its result if no other has begun, because it is kept', async () => {
      const lost = service.run(key, { lease: 2_000 }, async ({ lock }) => {
        await two.locks.forceRelease(`idempotency:${key}`);
        await eventually(() => lock.signal.aborted);
        return 'late';
      });
      expect(await lost).toBe('late');
      expect(await repeat()).toBe('late');
    });

    it('that lost its lock to another one rejects with the loss; the result of the other is kept', async () => {
      const lost = service.run(key, {}, async () => {
        await two.locks.forceRelease(`idempotency:${key}`);
        expect(await others.run(key, {}, async ({ attempt }) => `attempt ${attempt}`)).toBe('attempt 2');
        return 'late';
      });
      await expect(lost).rejects.toThrow(LockLostError);
      expect(await repeat()).toBe('attempt 2');
    });

    it('that lost its lock cannot keep its result while the other one still runs', async () => {
      const [taken, ended] = [new Gate(), new Gate()];
      let newer: Promise<unknown> = Promise.resolve();
      const lost = service.run(key, {}, async () => {
        await two.locks.forceRelease(`idempotency:${key}`);
        newer = others.run(key, {}, async () => {
          taken.open();
          await ended.opened;
          return 'newer';
        });
        await taken.opened;
        return 'late';
      });
      await expect(lost).rejects.toThrow(LockLostError);
      ended.open();
      expect(await newer).toBe('newer');
      expect(await repeat()).toBe('newer');
    });
  });

  describe('a key', () => {
    it.each([
      ['braces', '{a}', '}{a'],
      ['the end of a key of the store', '}:result', ':result'],
      ['spaces and line feeds', 'a \n', 'a\n '],
      ['characters beyond ASCII', 'é', 'e\u0301'],
      ['10,000 characters', 'x'.repeat(10_000), 'x'.repeat(10_001)],
    ])('may have %s', async (_, end, another) => {
      for (const each of [end, another]) await service.run(key + each, {}, returning(each));
      for (const each of [end, another]) expect(await others.run(key + each, {}, never)).toBe(each);
    });

    it('is another one in an application with another prefix', async () => {
      await service.run(key, {}, returning('first'));
      await using prefixed = await startAnother({ prefix: 'other' });
      const its = prefixed.app.get(IdempotencyService);
      expect(await its.run(key, {}, returning('second'))).toBe('second');
      expect([await repeat(), await its.run(key, {}, never)]).toEqual(['first', 'second']);
    });
  });

  describe('input', () => {
    it.each([
      ['', {}, PrimitiveKeyError, /empty string/],
      ['k', { fingerprint: () => 1 }, PrimitiveKeyError, /fingerprint/],
      ['k', { ttl: 0 }, PrimitiveConfigError, /"ttl" is 0/],
      ['k', { onRunning: 'later' }, PrimitiveConfigError, /'wait' or 'throw'/],
      ['k', { maxBytes: -1 }, PrimitiveConfigError, /"maxBytes" is -1/],
      ['k', { serializer: {} }, PrimitiveConfigError, /serialize\(\)/],
      ['k', { expires: 1 }, PrimitiveConfigError, /Unknown idempotency option "expires"/],
    ])('%p with %p is refused', async (badKey, options, Refusal, message) => {
      const refused = await service
        .run(badKey, options as IdempotentRunOptions, never)
        .catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(Refusal);
      expect((refused as Error).message).toMatch(message);
    });
  });
});

/** What holds if requests come twice, late, or out of order. */
eachIdempotency(() => {
  let store: IdempotencyStore;
  beforeAll(() => {
    store = one.app.get(PrimitiveRuntime, { strict: false }).home('Idempotent methods').stores.results;
  });

  const beginAttempt = async (token: number, fingerprint = '') => store.begin({ key, token, fingerprint, ttl: 60_000 });
  const keep = async (token: number, payload: string, evenIfForgotten = true) => {
    const record = { state: 'value', token, attempt: 1, fingerprint: '', payload } as const;
    return store.keep({ key, record, ttl: 60_000, evenIfForgotten });
  };
  const kept = async () => (await store.read(key))?.payload.toString();

  it('a begin that is sent twice counts once', async () => {
    for (let time = 1; time <= 2; time++)
      expect(await beginAttempt(5)).toMatchObject({ state: 'running', token: 5, attempt: 1 });
    expect(await beginAttempt(7)).toMatchObject({ token: 7, attempt: 2 });
  });

  it('a begin that arrives after a later one changes nothing', async () => {
    await beginAttempt(7);
    expect(await beginAttempt(5)).toMatchObject({ token: 7, attempt: 1 });
    expect(await store.read(key)).toMatchObject({ token: 7, attempt: 1 });
  });

  it('a begin that arrives after a result changes nothing', async () => {
    await beginAttempt(5);
    await keep(5, 'first');
    for (const token of [4, 5, 6]) expect(await beginAttempt(token)).toMatchObject({ state: 'value', token: 5 });
    expect(await kept()).toBe('first');
  });

  it('a later attempt has the fingerprint of the first that gave one, and no other', async () => {
    await beginAttempt(5);
    expect(await beginAttempt(6, 'aa')).toMatchObject({ token: 6, fingerprint: 'aa' });
    expect(await beginAttempt(7)).toMatchObject({ token: 7, fingerprint: 'aa', attempt: 3 });
    expect(await beginAttempt(8, 'bb')).toMatchObject({ token: 7, fingerprint: 'aa', attempt: 3 });
  });

  it('a result that is sent twice is kept once', async () => {
    await beginAttempt(5);
    expect([await keep(5, 'first'), await keep(5, 'first')]).toEqual([true, true]);
    expect(await keep(6, 'second')).toBe(false);
    expect(await kept()).toBe('first');
  });

  it('a result of an attempt that another one has followed is refused', async () => {
    await beginAttempt(5);
    await beginAttempt(6);
    expect(await keep(5, 'late')).toBe(false);
    expect(await keep(6, 'next')).toBe(true);
    expect(await keep(5, 'late')).toBe(false);
    expect(await kept()).toBe('next');
  });

  it('a result whose attempt is forgotten is kept only for a holder of the lock', async () => {
    expect(await keep(5, 'without the lock', false)).toBe(false);
    expect(await store.read(key)).toBeNull();
    expect(await keep(5, 'within the lock')).toBe(true);
    expect(await kept()).toBe('within the lock');
  });

  it('what a caller does to the bytes of an answer does not change what is kept', async () => {
    await beginAttempt(5);
    await keep(5, 'first');
    for (const answer of [await store.read(key), await beginAttempt(6)]) answer?.payload.fill(0);
    expect(await kept()).toBe('first');
  });
});
