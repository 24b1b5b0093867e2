import { AsyncLocalStorage } from 'node:async_hooks';
import { memory, type Lock, type LockService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { Gate } from '../../support/gate.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { RENEWED_OFTEN } from '../../support/renewals.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

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
