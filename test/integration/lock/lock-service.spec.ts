import { setTimeout as sleep } from 'node:timers/promises';
import {
  LockConfigError,
  LockKeyError,
  LockLostError,
  LockTimeoutError,
  limitedRetries,
  fixedDelay,
  memory,
  type Lock,
  type LockOptions,
  type LockService,
} from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { quietTimeSince } from '../../support/quiet-time.js';
import { RENEWED_OFTEN } from '../../support/renewals.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

/** Every backend keeps the same promises. */
describe.each(['redis', 'memory'] as const)('LockService on %s', (kind) => {
  let one: LockApp;
  let two: LockApp;
  let locks: LockService;
  let others: LockService;

  beforeAll(async () => {
    const options = () => (kind === 'redis' ? { redis: server.url } : { backend: shared });
    const shared = memory();
    [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
    [locks, others] = [one.locks, two.locks];
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  describe('exclusion', () => {
    it('lets one of 100 parallel callers in at a time, and all in the end (§5 case 42)', async () => {
      let inside = 0;
      let most = 0;
      let done = 0;
      const enter = (service: LockService) =>
        service.withLock('crowd', { wait: 25_000 }, async () => {
          most = Math.max(most, ++inside);
          await sleep(1);
          inside -= 1;
          done += 1;
        });
      await Promise.all(Array.from({ length: 100 }, (_, index) => enter(index % 2 ? locks : others)));
      expect({ most, done }).toEqual({ most: 1, done: 100 });
    });

    it('answers null to one try of a held lock, and a lock once it is free', async () => {
      const held = await locks.acquire('try');
      expect(await others.tryAcquire('try')).toBeNull();
      expect(await locks.tryAcquire('try')).toBeNull();
      await held.release();
      const taken = await others.tryAcquire('try');
      expect(taken?.held).toBe(true);
      await taken?.release();
    });

    it('waits for as long as it was told, and no longer (§5 case 5)', async () => {
      const held = await locks.acquire('wait');
      const start = performance.now();
      const error: unknown = await others.acquire('wait', { wait: 1_000 }).catch((caught: unknown) => caught);
      const waited = performance.now() - start;
      expect(error).toBeInstanceOf(LockTimeoutError);
      expect((error as LockTimeoutError).keys).toEqual(['wait']);
      expect((error as LockTimeoutError).message).toContain(held.owner);
      expect(waited).toBeGreaterThanOrEqual(990);
      expect(waited).toBeLessThan(1_500);
      await held.release();
    });

    it('takes zero for a wait at its word: one try', async () => {
      const held = await locks.acquire('zero');
      const start = performance.now();
      await expect(others.acquire('zero', { wait: 0 })).rejects.toBeInstanceOf(LockTimeoutError);
      expect(quietTimeSince(start)).toBeLessThan(500);
      await held.release();
    });

    it('lets a waiter in at once when the lease of a dead holder runs out', async () => {
      await locks.acquire('dead', { ttl: 400, renew: false });
      const start = performance.now();
      const next = await others.acquire('dead', { wait: 5_000, retry: fixedDelay(60_000) });
      expect(quietTimeSince(start)).toBeLessThan(700);
      await next.release();
    });

    it("never lets a waiter's time-out take the holder's lock away", async () => {
      const held = await locks.acquire('victim');
      await expect(others.acquire('victim', { wait: 100 })).rejects.toBeInstanceOf(LockTimeoutError);
      expect(await locks.isLocked('victim')).toBe(true);
      expect((await locks.inspect('victim'))?.owner).toBe(held.owner);
      await held.release();
    });

    it('stops trying when the retry strategy is done', async () => {
      const held = await locks.acquire('limited');
      const start = performance.now();
      const retry = limitedRetries(2, fixedDelay(10));
      await expect(others.acquire('limited', { wait: 10_000, retry })).rejects.toBeInstanceOf(LockTimeoutError);
      expect(quietTimeSince(start)).toBeLessThan(2_000);
      await held.release();
    });
  });

  describe('cancelling a wait (§5 case 40)', () => {
    it('rejects with the reason of the signal, and leaves nothing behind (§5 case 2)', async () => {
      const held = await locks.acquire('cancel');
      const controller = new AbortController();
      const waiting = others.acquire('cancel', { wait: Infinity, signal: controller.signal });
      const reason = new Error('changed my mind');
      setTimeout(() => controller.abort(reason), 50);
      await expect(waiting).rejects.toBe(reason);
      await held.release();
      expect(await locks.isLocked('cancel')).toBe(false);
    });

    it('rejects at once when the signal was aborted before', async () => {
      await expect(locks.acquire('aborted', { signal: AbortSignal.abort('no') })).rejects.toBe('no');
      expect(await locks.isLocked('aborted')).toBe(false);
    });

    it('does not touch a lock that is held already', async () => {
      const controller = new AbortController();
      const lock = await locks.acquire('after', { signal: controller.signal });
      controller.abort();
      expect(lock.held).toBe(true);
      expect(lock.signal.aborted).toBe(false);
      await lock.release();
    });
  });

  describe('several names at once', () => {
    it('sorts them, drops duplicates, and takes all or none', async () => {
      const held = await locks.acquire('{m}:b');
      expect(await others.tryAcquire(['{m}:c', '{m}:a', '{m}:b'])).toBeNull();
      expect(await locks.isLocked('{m}:a')).toBe(false);
      expect(await locks.isLocked('{m}:c')).toBe(false);
      await held.release();
      const all = await others.acquire(['{m}:c', '{m}:a', '{m}:c', '{m}:b']);
      expect(all.keys).toEqual(['{m}:a', '{m}:b', '{m}:c']);
      for (const name of all.keys) expect(await locks.tryAcquire(name)).toBeNull();
      await all.release();
      for (const name of all.keys) expect(await locks.isLocked(name)).toBe(false);
    });

    it('has one token, above all that the names had before', async () => {
      const first = await locks.acquire('{t}:a');
      await first.release();
      const both = await locks.acquire(['{t}:a', '{t}:b']);
      expect(both.fencingToken).toBeGreaterThan(first.fencingToken);
      expect((await locks.inspect('{t}:a'))?.fencingToken).toBe(both.fencingToken);
      expect((await locks.inspect('{t}:b'))?.fencingToken).toBe(both.fencingToken);
      await both.release();
    });

    it('cannot deadlock with callers that name them in another order', async () => {
      const turn = (service: LockService, keys: string[]) => service.withLock(keys, { wait: 20_000 }, () => sleep(1));
      await Promise.all(
        Array.from({ length: 20 }, (_, i) => turn(i % 2 ? locks : others, i % 3 ? ['x', 'y'] : ['y', 'x'])),
      );
      expect(await locks.isLocked('x')).toBe(false);
    });

    it.each([[[]], [''], [['a', '']], [undefined], [[null]], [7]])('refuses the key %j', async (key) => {
      let ran = false;
      const body = async () => {
        ran = true;
      };
      await expect(locks.withLock(key as unknown as string, body)).rejects.toBeInstanceOf(LockKeyError);
      expect(ran).toBe(false);
    });
  });

  describe('fencing tokens (§5 case 24)', () => {
    it('rise with every grant, and stay the same on re-entry', async () => {
      const tokens: number[] = [];
      for (const service of [locks, others, locks]) {
        const acquired = await service.acquire('fence');
        tokens.push(acquired.fencingToken);
        await acquired.release();
        const tried = (await service.tryAcquire('fence')) as Lock;
        tokens.push(tried.fencingToken);
        await tried.release();
        await service.withLock('fence', async (outer) => {
          tokens.push(outer.fencingToken);
          await service.withLock('fence', async (inner) => expect(inner.fencingToken).toBe(outer.fencingToken));
        });
      }
      expect(tokens).toEqual([...new Set(tokens)].toSorted((some, other) => some - other));
      expect(tokens.every(Number.isSafeInteger)).toBe(true);
    });
  });

  describe('release', () => {
    it('is idempotent (§5 case 40)', async () => {
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

    it('goes by name to what this context acquired, and never to that of another instance (§5 case 9)', async () => {
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

    it('tells of a lock that was lost before (§5 case 34)', async () => {
      const lock = await locks.acquire('expired', { ttl: 100, renew: false });
      await eventually(() => !lock.held);
      await expect(locks.release('expired')).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
      const other = await locks.acquire('expired-too', { ttl: 100, renew: false });
      await eventually(() => !other.held);
      await expect(other.release()).rejects.toBeInstanceOf(LockLostError);
    });

    it("leaves the next holder's lock alone when it comes too late", async () => {
      const late = await locks.acquire('late', { ttl: 100, renew: false });
      const next = await others.acquire('late');
      await expect(late.release()).rejects.toBeInstanceOf(LockLostError);
      await sleep(50);
      expect((await locks.inspect('late'))?.owner).toBe(next.owner);
      await next.release();
    });

    it('by force frees the name whoever holds it, and wakes waiters (§5 case 8)', async () => {
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
    it('is renewed for as long as it is held, and not a moment longer (§5 case 11)', async () => {
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

    it('is not shortened by re-entry nor by its release (§5 case 4)', async () => {
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

    it('cannot be extended once it ended (§5 case 33)', async () => {
      const lock = await locks.acquire('ended', { ttl: 100, renew: false });
      await eventually(() => !lock.held);
      await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
      await eventually(async () => !(await locks.isLocked('ended')));
    });

    it('ends after maxHold although its holder lives', async () => {
      const start = performance.now();
      const held = locks.withLock('max', { ttl: 2_000, maxHold: 500 }, async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        expect(quietTimeSince(start)).toBeLessThan(1_000);
        expect(performance.now() - start).toBeGreaterThan(450);
      });
      await expect(held).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'maxHold' });
    });

    it('tells of its loss: not on release, and at once to whoever comes later (§5 case 39)', async () => {
      const released = await locks.acquire('signal');
      await released.release();
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

  describe('inspect', () => {
    it('tells who holds the name, for how long, and how many wait', async () => {
      expect(await locks.inspect('look')).toBeNull();
      const lock = await locks.acquire('look', { ttl: 5_000 });
      const waiting = locks.acquire('look');
      const info = await locks.inspect('look');
      expect(info).toMatchObject({ owner: lock.owner, fencingToken: lock.fencingToken, waiting: 1 });
      expect(info?.ttl).toBeGreaterThan(4_000);
      expect(info?.ttl).toBeLessThanOrEqual(5_000);
      await lock.release();
      await (await waiting).release();
    });
  });

  describe('bad input', () => {
    it.each<[string, unknown, RegExp]>([
      ['ttl', 99, /"ttl" is 99; give .*from 100/],
      ['ttl', Number.NaN, /"ttl" is NaN/],
      ['ttl', 2 ** 31, /"ttl" is 2147483648/],
      ['ttl', '1x', /"ttl" is "1x"/],
      ['wait', -2, /"wait" is -2; give/],
      ['wait', Number.NaN, /"wait" is NaN/],
      ['maxHold', 0, /"maxHold" is 0/],
      ['renew', 'yes', /"renew" is "yes"/],
      ['renew', { interval: 30_000 }, /"renew.interval" is 30000; give less than two thirds of ttl/],
      ['reentrant', 1, /"reentrant" is 1/],
      ['order', 'lifo', /"order" is "lifo"/],
      ['retry', 5, /"retry" is 5/],
      ['signal', {}, /"signal" is/],
      ['backend', 'absent', /"backend" is "absent"; give a name/],
      ['tll', 500, /Unknown lock option "tll"; give any of ttl/],
    ])('names the option %s with the value %j, and the remedy', async (option, value, message) => {
      const options = { [option]: value } as LockOptions;
      const error: unknown = await locks.acquire('bad', options).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockConfigError);
      expect((error as Error).message).toMatch(message);
      expect(await locks.isLocked('bad')).toBe(false);
    });
  });
});
