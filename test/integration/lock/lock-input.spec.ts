import {
  LockConfigError,
  LockKeyError,
  fixedDelay,
  memory,
  type LockOptions,
  type LockService,
  type RetryStrategy,
} from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

describe.each(['redis', 'memory'] as const)('what a caller gives to a lock on %s', (kind) => {
  let app: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    app = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    locks = app.locks;
  });
  afterAll(() => app.close());

  const strategy = (result: unknown) => (() => ({ next: () => result })) as unknown as RetryStrategy;

  it.each<[string, RetryStrategy]>([
    ['NaN', strategy({ done: false, value: Number.NaN })],
    ['-1', strategy({ done: false, value: -1 })],
    ['"50"', strategy({ done: false, value: '50' })],
    ['undefined', strategy({ done: false, value: undefined })],
    ['7', strategy(7)],
    ['undefined', strategy(undefined)],
    ['10', (() => 10) as unknown as RetryStrategy],
  ])('is refused as a delay between tries: %s', async (shown, retry) => {
    const held = await locks.acquire('delayed');
    const error: unknown = await locks.acquire('delayed', { retry, wait: 20_000 }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockConfigError);
    expect((error as Error).message).toContain(`"retry" is ${shown}; give`);
    await held.release();
    expect(await locks.isLocked('delayed')).toBe(false);
  });

  it('may be a generator of delays, of which 0 and Infinity are two', async () => {
    const held = await locks.acquire('generated', { ttl: 200, renew: false });
    const lock = await locks.acquire('generated', {
      retry: function* () {
        yield 0;
        for (;;) yield Infinity;
      },
    });
    expect(held.held).toBe(false);
    await lock.release();
  });

  it.each([['one'], ['one', 'two']])('is not looked at again after the call: a list of names', async (...names) => {
    const keys = [...names];
    const lock = await locks.acquire(keys, { retry: fixedDelay(10) });
    keys[0] = 'other';
    expect(lock.keys).toEqual(names.toSorted());
    await lock.release();
    for (const name of names) expect(await locks.isLocked(name)).toBe(false);
  });

  it('may be options of a class, with getters, or undefined, and is refused alike by each call', async () => {
    class Options {
      get ttl() {
        return 700;
      }
    }
    for (const lock of [await locks.acquire('o', new Options()), await locks.acquire('p', undefined)])
      await lock.release();
    const tried = await locks.tryAcquire('o', new Options());
    expect(tried?.remaining()).toBeLessThanOrEqual(700);
    await tried?.release();
    await expect(locks.withLock('o', undefined, async () => 'ran')).resolves.toBe('ran');
    for (const refused of [
      null,
      5,
      'x',
      () => {},
      { ttl: null },
      { wait: null },
      { order: null },
      { reentrant: null },
    ]) {
      const given = refused as unknown as LockOptions;
      for (const call of [
        () => locks.acquire('o', given),
        () => locks.tryAcquire('o', given),
        () => locks.withLock('o', given, async () => 'ran'),
      ]) {
        await expect(call()).rejects.toThrow(LockConfigError);
      }
    }
    expect(await locks.isLocked('o')).toBe(false);
  });

  it('must have a function to run, without which no lock is taken', async () => {
    const withLock = locks.withLock.bind(locks) as unknown as (...args: unknown[]) => Promise<unknown>;
    for (const args of [['q'], ['q', { ttl: 1_000 }], ['q', {}, 'body']]) {
      await expect(withLock(...args)).rejects.toThrow(
        /Option "body" is .*; give the function that runs inside the lock/,
      );
    }
  });

  it('may be a signal that was aborted before, which refuses also what would re-enter', async () => {
    const signal = AbortSignal.abort(new Error('gave up'));
    await locks.withLock('r', async () => {
      await expect(locks.withLock('r', { signal }, async () => 'ran')).rejects.toThrow('gave up');
      await expect(locks.tryAcquire(['r', 's'], { signal })).rejects.toThrow('gave up');
    });
    expect([await locks.isLocked('r'), await locks.isLocked('s')]).toEqual([false, false]);
  });

  it('may have a thousand names, and no more', async () => {
    const names = Array.from({ length: 1_001 }, (_, index) => `name:${index}`);
    const error: unknown = await locks.acquire(names).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockKeyError);
    expect((error as Error).message).toMatch(/1001 names; give at most 1000/);
    const lock = await locks.acquire([...names.slice(1), 'name:1'], { wait: 20_000 });
    expect(lock.keys).toHaveLength(1_000);
    await lock.release();
  });

  it('may be one signal for many waits, which Node.js does not take for a leak', async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on('warning', note);
    const held = await locks.acquire('signalled');
    const controller = new AbortController();
    const { signal } = controller;
    const waits = Array.from({ length: 50 }, () => locks.acquire('signalled', { signal, wait: Infinity }));
    const outcomes = Promise.allSettled(waits);
    await eventually(async () => (await locks.inspect('signalled'))?.waiting === 50);
    controller.abort(new Error('enough'));
    expect((await outcomes).map((outcome) => outcome.status === 'rejected' && outcome.reason)).toEqual(
      waits.map(() => new Error('enough')),
    );
    await held.release();
    // Warnings are emitted in a later tick.
    await new Promise((resolve) => setImmediate(resolve));
    process.off('warning', note);
    expect(warnings).toEqual([]);
  });
});
