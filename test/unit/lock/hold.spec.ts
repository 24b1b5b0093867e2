import { AsyncLocalStorage } from 'node:async_hooks';
import { jest } from '@jest/globals';
import { memory } from 'nest-redis-lock/memory';
import { LockKeyError } from '../../../lib/errors/lock-errors.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { Gate } from '../../support/gate.js';
import { type LockServices, startLockServices } from '../../support/lock-services.js';

/** One storage serves all module instances: each that is used makes every promise of the process more expensive. */

it('uses one storage for all module instances', async () => {
  const run = jest.spyOn(AsyncLocalStorage.prototype, 'run');
  const enterWith = jest.spyOn(AsyncLocalStorage.prototype, 'enterWith');
  try {
    for (let instance = 0; instance < 3; instance++) {
      await using app = await startLockServices({ backend: memory() });
      await app.locks.withLock('a', async () => {});
      await app.locks.acquire('b');
      await app.locks.release('b');
    }
    const used = [...run.mock.contexts, ...enterWith.mock.contexts];
    expect(used.length).toBeGreaterThanOrEqual(6);
    expect(new Set(used).size).toBe(1);
  } finally {
    run.mockRestore();
    enterWith.mockRestore();
  }
});

it('keeps the holds of two module instances apart, in whatever order they are nested', async () => {
  await using one = await startLockServices({ backend: memory() });
  await using two = await startLockServices({ backend: memory() });
  await one.locks.withLock('x', async (outer) => {
    await two.locks.withLock('x', async (other) => {
      expect(other.owner).not.toBe(outer.owner);
      // Each re-enters its own hold; without one, it would wait for itself.
      for (const [locks, hold] of [
        [one.locks, outer],
        [two.locks, other],
      ] as const) {
        await locks.withLock('x', { wait: 0 }, async (inner) => expect(inner.fencingToken).toBe(hold.fencingToken));
      }
      await expect(one.locks.acquire('x', { reentrant: false })).rejects.toThrow('"x"');
    });
    await two.locks.acquire('x');
    await one.locks.withLock('y', async () => two.locks.release('x'));
    expect(await two.locks.isLocked('x')).toBe(false);
    expect(outer.held).toBe(true);
  });
  await expect(one.locks.release('x')).rejects.toMatchObject({ code: 'LOCK_KEY' });
});

it('calls the listeners of a signal in the scopes of its holder alone, beside those of other module instances', async () => {
  await using one = await startLockServices({ backend: memory() });
  await using two = await startLockServices({ backend: memory() });
  const seen = await two.locks.withLock('around', async () => {
    const lock = await one.locks.acquire('lost', { ttl: 100, renew: false });
    return new Promise((resolve) => {
      lock.signal.addEventListener('abort', () =>
        resolve(two.locks.withLock('around', { wait: 0 }, async () => 're-entered')),
      );
    });
  });
  expect(seen).toBe('re-entered');
});

it('keeps nothing of the module instances whose holds have ended', async () => {
  const enterWith = jest.spyOn(AsyncLocalStorage.prototype, 'enterWith');
  try {
    for (let instance = 0; instance < 20; instance++) {
      await using app = await startLockServices({ backend: memory() });
      await app.locks.acquire('b');
      await app.locks.release('b');
    }
    const entered = enterWith.mock.calls.map(([frame]) => depthOf(frame));
    expect(Math.max(...entered)).toBeLessThan(5);
  } finally {
    enterWith.mockRestore();
  }
});

/** How many objects of the same kind are linked from `frame` on. */
function depthOf(frame: unknown): number {
  if (typeof frame !== 'object' || frame === null) return 0;
  return (
    1 +
    Math.max(
      0,
      ...Object.values(frame)
        .filter((each) => each?.constructor === Object)
        .map(depthOf),
    )
  );
}

describe('a lock of acquire()', () => {
  /** More acquisitions than a chain keeps of those that have ended. */
  const MANY = 40;

  let app: LockServices;

  beforeEach(async () => {
    app = await startLockServices({ backend: memory() });
  });
  afterEach(() => app.close());

  it('is not released by name in a branch after a later acquire of the name failed', async () => {
    const { locks } = app;
    const many = new Gate();
    const held = await locks.acquire('name');
    expect(await locks.tryAcquire('name')).toBeNull();
    const other = await locks.acquire('other');
    const branch = (async () => {
      await many.opened;
      await locks.release('name');
    })();
    for (let number = 0; number < MANY; number++) expect(await locks.tryAcquire('name')).toBeNull();
    many.open();
    await expect(branch).rejects.toBeInstanceOf(LockKeyError);
    expect(held.held).toBe(true);
    await other.release();
    await held.release();
  });

  it('that ended before its caller went on is taken again, in the async context of the caller', async () => {
    const { locks } = app;
    const contexts = new AsyncLocalStorage<string>();
    const asked: (string | undefined)[] = [];
    const listener = () => asked.push(contexts.getStore());
    const first = await locks.acquire('name');
    const second = locks.acquire('name');
    lockChannels.attempt.subscribe(listener);
    try {
      const next = contexts.run('next', () => locks.acquire('name', { ttl: 100, renew: false, wait: Infinity }));
      await first.release();
      const holder = await second;
      // It is granted in the context of the holder before it, which then keeps the event loop for too long.
      const released = contexts.run('holder', () => holder.release());
      const end = performance.now() + 150;
      while (performance.now() < end);
      const lock = await next;
      expect(lock.held).toBe(true);
      expect(asked).toEqual(['next', 'next']);
      await Promise.all([released, lock.release()]);
    } finally {
      lockChannels.attempt.unsubscribe(listener);
    }
  });
});
