import {
  LockConfigError,
  LockKeyError,
  fixedDelay,
  memory,
  type LockService,
  type RetryStrategy,
} from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../sample-app/src/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';

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
