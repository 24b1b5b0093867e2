import { setTimeout as sleep } from 'node:timers/promises';
import { LockKeyError, LockLostError, LockTimeoutError, type Lock } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { RENEWED_OFTEN } from '../support/renewals.js';
import { eachLockBackend, one, two, locks, others } from './each-lock-backend.js';

eachLockBackend(() => {
  describe('release', () => {
    it('is idempotent', async () => {
      const lock = await locks.acquire('twice');
      await Promise.all([lock.release(), lock.release()]);
      await lock[Symbol.asyncDispose]();
      expect(lock.held).toBe(false);
      expect(lock.remaining()).toBe(0);
      expect(lock.signal.aborted).toBe(false);
    });

    it('happens at the end of an await using block', async () => {
      {
        await using lock = await locks.acquire('using');
        expect(lock.held).toBe(true);
        expect(await others.isLocked('using')).toBe(true);
      }
      expect(await others.isLocked('using')).toBe(false);
    });

    it('goes by name to what this context acquired, and never to that of another instance', async () => {
      await locks.acquire('by-name');
      await expect(others.release('by-name')).rejects.toBeInstanceOf(LockKeyError);
      expect(await locks.isLocked('by-name')).toBe(true);
      await locks.release('by-name');
      expect(await locks.isLocked('by-name')).toBe(false);
      await expect(locks.release('by-name')).rejects.toBeInstanceOf(LockKeyError);
    });

    it('goes by name to the innermost hold of the running code first', async () => {
      await locks.withLock('inner', async (lock) => {
        await locks.release('inner');
        expect(lock.held).toBe(false);
        expect(await others.isLocked('inner')).toBe(false);
      });
    });

    it('rejects when the lock was lost before', async () => {
      const lock = await locks.acquire('expired', { ttl: 100, renew: false });
      await eventually(() => !lock.held);
      await expect(locks.release('expired')).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
      const other = await locks.acquire('expired-too', { ttl: 100, renew: false });
      await eventually(() => !other.held);
      await expect(other.release()).rejects.toBeInstanceOf(LockLostError);
    });

    it("does not touch the next holder's lock when it comes too late", async () => {
      const late = await locks.acquire('late', { ttl: 100, renew: false });
      const next = await others.acquire('late');
      await expect(late.release()).rejects.toBeInstanceOf(LockLostError);
      await sleep(50);
      expect((await locks.inspect('late'))?.owner).toBe(next.owner);
      await next.release();
    });

    it('by force frees the name of any holder, and wakes waiters', async () => {
      const held = await locks.acquire('force', { ttl: 60_000 });
      const waiting = others.acquire('force', { wait: 5_000 });
      expect(await locks.forceRelease('force')).toBe(true);
      expect(held.held).toBe(false);
      expect(held.signal.aborted).toBe(true);
      const next = await waiting;
      await next.release();
      expect(await locks.forceRelease('force')).toBe(false);
      await expect(held.release()).rejects.toMatchObject({ reason: 'taken' });
    });
  });

  describe('lease', () => {
    it('is renewed for as long as it is held, and not a moment longer', async () => {
      await locks.withLock('renewed', { ttl: 2_000 }, async (lock) => {
        await locks.withLock('renewed', { ttl: 2_000 }, () => sleep(10));
        const until = performance.now() + 3_000;
        while (performance.now() < until) {
          expect(await others.tryAcquire('renewed')).toBeNull();
          await sleep(20);
        }
        expect(lock.held).toBe(true);
      });
      expect(await locks.isLocked('renewed')).toBe(false);
      await sleep(700);
      expect(await locks.isLocked('renewed')).toBe(false);
    });

    it('is not shortened by re-entry nor by its release', async () => {
      await locks.withLock('re-entry', { ttl: 10_000 }, async () => {
        await locks.withLock('re-entry', { ttl: 1_000 }, async () => {
          await locks.withLock('re-entry', { ttl: 1_000 }, () => sleep(1));
        });
        const ttl = (await locks.inspect('re-entry'))?.ttl ?? 0;
        expect(ttl).toBeGreaterThan(9_000);
        expect(ttl).toBeLessThanOrEqual(10_000);
      });
    });

    it('is lengthened for a nested hold that needs more, where nobody renews it', async () => {
      await locks.withLock('longer', { ttl: 2_000, renew: false }, async (outer) => {
        await locks.withLock('longer', { ttl: 5_000 }, async () => {
          expect(outer.remaining()).toBeGreaterThan(4_000);
        });
      });
    });

    it('is extended by hand, and never shortened', async () => {
      const lock = await locks.acquire('extend', { ttl: 5_000, renew: false });
      await lock.extend(10_000);
      expect(lock.remaining()).toBeGreaterThan(9_000);
      await lock.extend();
      expect(lock.remaining()).toBeGreaterThan(9_000);
      expect((await locks.inspect('extend'))?.ttl).toBeGreaterThan(9_000);
      await lock.release();
    });

    it('cannot be extended once it ended', async () => {
      const lock = await locks.acquire('ended', { ttl: 100, renew: false });
      await eventually(() => !lock.held);
      await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
      await eventually(async () => !(await locks.isLocked('ended')));
    });

    it('ends after maxHold although its holder lives', async () => {
      const start = performance.now();
      const held = locks.withLock('max', { ttl: 2_000, maxHold: 500 }, async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        expect(performance.now() - start).toBeGreaterThan(450);
      });
      await expect(held).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'maxHold' });
    });

    it('aborts its signal on loss, but not on release, and at once for a later listener', async () => {
      const released = await locks.acquire('signal');
      await released.release();
      const said = { reason: 'released', message: expect.stringMatching(/^Lock "signal" is held no longer/) };
      expect(() => released.assertHeld()).toThrow(expect.objectContaining(said));
      await expect(released.extend()).rejects.toMatchObject(said);
      const lost = await locks.acquire('signal', { ttl: 100, renew: false });
      const told = new Promise((resolve) => lost.signal.addEventListener('abort', () => resolve(lost.signal.reason)));
      expect(await told).toBeInstanceOf(LockLostError);
      expect(lost.signal.aborted).toBe(true);
      expect(() => lost.assertHeld()).toThrow(LockLostError);
      const late = await locks.acquire('signal', { ttl: 100, renew: false });
      await sleep(150);
      expect(late.signal.aborted).toBe(true);
      expect(released.signal.aborted).toBe(false);
      await expect(late.release()).rejects.toBeInstanceOf(LockLostError);
    });
  });

  describe('re-entry', () => {
    it('lets nested calls in at once, on the same lease', async () => {
      await locks.withLock('nested', async (outer) => {
        expect(locks.current()).toBe(outer);
        await locks.withLock('nested', { wait: 0 }, async (inner) => {
          expect(inner.owner).toBe(outer.owner);
          expect(locks.current()).toBe(inner);
          const bare = await locks.acquire('nested', { wait: 0 });
          await bare.release();
        });
        expect(outer.held).toBe(true);
        expect(await others.tryAcquire('nested')).toBeNull();
      });
      expect(locks.current()).toBeUndefined();
    });

    it('lets ten siblings of one scope take turns', async () => {
      let inside = 0;
      let most = 0;
      await locks.withLock('siblings', async () => {
        const sibling = () =>
          locks.withLock('siblings', async () => {
            most = Math.max(most, ++inside);
            await sleep(5);
            inside -= 1;
          });
        await Promise.all(Array.from({ length: 10 }, sibling));
      });
      expect(most).toBe(1);
    });

    it('bounds the wait for a turn, and passes the turn on', async () => {
      await locks.withLock('turns', async () => {
        const gate = new Gate();
        const first = locks.withLock('turns', () => gate.opened);
        await expect(locks.withLock('turns', { wait: 50 }, () => sleep(0))).rejects.toBeInstanceOf(LockTimeoutError);
        const third = locks.withLock('turns', async () => 'third');
        gate.open();
        await first;
        expect(await third).toBe('third');
      });
    });

    it('does not reach into another application of the same process', async () => {
      await locks.withLock('apart', async () => {
        expect(await others.tryAcquire('apart')).toBeNull();
        expect(others.current()).toBeUndefined();
        await others.withLock('other', async () => expect(await locks.tryAcquire('other')).toBeNull());
      });
    });

    it('ends with the scope: work that outlives it waits like any other', async () => {
      const begin = new Gate();
      let outlived!: Promise<Lock | null>;
      await locks.withLock('outlived', async () => {
        outlived = begin.opened.then(() => locks.tryAcquire('outlived'));
      });
      const next = await others.acquire('outlived');
      begin.open();
      expect(await outlived).toBeNull();
      await next.release();
    });

    it('lets siblings that wait for their turn when the scope ends wait like any other', async () => {
      const [began, gate] = [new Gate(), new Gate()];
      const order: string[] = [];
      const sibling = (name: string) => locks.withLock('ending', { wait: 10_000 }, async () => void order.push(name));
      let siblings!: Promise<unknown>;
      await locks.withLock('ending', async (outer) => {
        const first = locks.withLock('ending', async () => {
          began.open();
          await gate.opened;
          order.push('first');
        });
        await began.opened;
        siblings = Promise.all([first, sibling('second'), sibling('third')]);
        await sleep(20);
        await outer.release();
        gate.open();
      });
      await siblings;
      expect(order[0]).toBe('first');
      expect(order.toSorted()).toEqual(['first', 'second', 'third']);
      expect(await others.isLocked('ending')).toBe(false);
    });

    it('keeps the lease for a nested hold that outlives the outer one', async () => {
      let inner!: Lock;
      await locks.withLock('kept', async () => {
        inner = await locks.acquire('kept');
      });
      expect(inner.held).toBe(true);
      expect(await others.tryAcquire('kept')).toBeNull();
      await inner.release();
      expect(await others.isLocked('kept')).toBe(false);
    });

    it('enters what it holds of several names and acquires the rest', async () => {
      await locks.withLock(['{p}:a', '{p}:b'], async (outer) => {
        const { fencingToken: before } = outer;
        await locks.withLock(['{p}:b', '{p}:c'], { wait: 0 }, async (inner) => {
          expect(inner.keys).toEqual(['{p}:b', '{p}:c']);
          expect(inner.fencingToken).toBeGreaterThan(before);
          expect(outer.fencingToken).toBe(inner.fencingToken);
          expect(await others.tryAcquire('{p}:c')).toBeNull();
        });
        expect(await others.isLocked('{p}:c')).toBe(false);
        expect(await others.isLocked('{p}:b')).toBe(true);
      });
    });

    it('can be switched off', async () => {
      await locks.withLock('flat', async () => {
        await expect(locks.withLock('flat', { reentrant: false, wait: 0 }, () => sleep(0))).rejects.toBeInstanceOf(
          LockTimeoutError,
        );
      });
    });

    it('is not granted by a bare acquire', async () => {
      const bare = await locks.acquire('bare');
      expect(await locks.tryAcquire('bare')).toBeNull();
      await bare.release();
    });

    it('is refused once the outer lock is lost', async () => {
      let entered = false;
      const outer = locks.withLock('doomed', { ttl: 100, renew: false }, async (lock) => {
        await eventually(() => lock.signal.aborted);
        await locks.withLock('doomed', async () => {
          entered = true;
        });
      });
      await expect(outer).rejects.toBeInstanceOf(LockLostError);
      expect(entered).toBe(false);
    });
  });

  describe('withLock', () => {
    it('answers what the body answers, and passes its error on untouched', async () => {
      expect(await locks.withLock('result', async () => 42)).toBe(42);
      const error = new Error('business');
      await expect(locks.withLock('result', () => Promise.reject(error))).rejects.toBe(error);
      expect(await others.isLocked('result')).toBe(false);
    });

    it('rejects when the lock was lost before the body ended, whatever the body answers', async () => {
      let thief: Lock | undefined;
      const stolen = locks.withLock('stolen', RENEWED_OFTEN, async ({ signal }) => {
        await others.forceRelease('stolen');
        thief = await others.acquire('stolen');
        await eventually(() => signal.aborted);
        return 'done';
      });
      await expect(stolen).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
      expect(await locks.isLocked('stolen')).toBe(true);
      await thief?.release();
    });

    it('logs a loss in one line', () => {
      // Nest has one logger for all applications of a process: that of the last one.
      const lines = [one, two].flatMap(({ logger }) => logger.matching(/"stolen" lost \(taken\)/));
      expect(lines).toHaveLength(1);
    });
  });
});
