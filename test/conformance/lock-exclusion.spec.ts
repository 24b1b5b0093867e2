import { setTimeout as sleep } from 'node:timers/promises';
import {
  LockConfigError,
  LockKeyError,
  LockTimeoutError,
  limitedRetries,
  fixedDelay,
  type Lock,
  type LockOptions,
  type LockService,
} from 'nest-redis-lock';
import { eachLockBackend, locks, others } from './each-lock-backend.js';

eachLockBackend(() => {
  describe('exclusion', () => {
    it('lets one of 100 parallel callers in at a time, and all in the end', async () => {
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

    /** What the call rejects with, before another one that waits for `wait`. */
    async function rejectionBefore(wait: number, name: string, options: LockOptions): Promise<LockTimeoutError> {
      const stop = new AbortController();
      const longer = others.acquire(name, { wait, signal: stop.signal }).catch(() => 'longer');
      const call = others.acquire(name, options).catch((caught: unknown) => caught);
      const error = await Promise.race([longer, call]);
      stop.abort();
      expect(error).toBeInstanceOf(LockTimeoutError);
      return error as LockTimeoutError;
    }

    it('waits for its `wait` and no longer', async () => {
      const held = await locks.acquire('wait');
      const error = await rejectionBefore(3_000, 'wait', { wait: 1_000 });
      expect(error.keys).toEqual(['wait']);
      expect(error.message).toContain(held.owner);
      expect(error.waited).toBeGreaterThanOrEqual(990);
      await held.release();
    });

    it('tries once with a wait of zero', async () => {
      const held = await locks.acquire('zero');
      // By default, it would wait for 5 s.
      await rejectionBefore(2_500, 'zero', { wait: 0 });
      await held.release();
    });

    it('lets a waiter in at once when the lease of a dead holder runs out', async () => {
      await locks.acquire('dead', { ttl: 400, renew: false });
      const next = await others.acquire('dead', { wait: 20_000, retry: fixedDelay(60_000) });
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
      const retry = limitedRetries(2, fixedDelay(10));
      await expect(others.acquire('limited', { wait: '1h', retry })).rejects.toBeInstanceOf(LockTimeoutError);
      await held.release();
    });
  });

  describe('cancelling a wait', () => {
    it('rejects with the reason of the signal, and leaves nothing behind', async () => {
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

    it('has no effect on a lock that is held already', async () => {
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

  describe('fencing tokens', () => {
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
