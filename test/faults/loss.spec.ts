import { setTimeout as sleep } from 'node:timers/promises';
import { jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { type Lock, LockBackendError, LockLostError, type LockOptions } from 'nest-redis-lock';
import { RENEW } from '../../lib/backends/redis/locks/release.lua.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { RENEWED_OFTEN } from '../support/renewals.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

describe('a lock', () => {
  let server: RedisServer;
  let app: LockApp;
  const rejections: unknown[] = [];
  const remember = (reason: unknown) => rejections.push(reason);

  beforeAll(() => process.on('unhandledRejection', remember));
  beforeEach(async () => {
    server = await startRedisServer();
    app = await startLockApp({ redis: server.url, commandTimeout: 300 });
  });
  afterEach(async () => {
    server.process.resume();
    await app.close();
    await server.stop();
  });
  afterAll(() => {
    process.off('unhandledRejection', remember);
    expect(rejections).toEqual([]);
  });

  describe('a holder that is stopped for longer than its lease', () => {
    it('sees the loss with its first look when it continues, and rejects with it', async () => {
      const holder = Child.start('holder.mjs', [String(server.port), 'paused', '1500']);
      try {
        const { fencingToken } = await holder.says<{ fencingToken: number }>('held');
        holder.signal('SIGSTOP');
        const next = await app.locks.acquire('paused', { wait: 5_000 });
        expect(next.fencingToken).toBeGreaterThan(fencingToken);
        holder.signal('SIGCONT');
        expect(await holder.says('woken')).toEqual({
          held: false,
          remaining: 0,
          aborted: true,
          thrown: 'LockLostError',
        });
        expect(await holder.says('ended')).toEqual({ error: 'LockLostError', reason: 'expired' });
        expect(await holder.exited).toBe(0);
        expect((await app.locks.inspect('paused'))?.owner).toBe(next.owner);
        await next.release();
      } finally {
        await holder.kill();
      }
    });

    it('is replaced after its lease when it was killed', async () => {
      const holder = Child.start('holder.mjs', [String(server.port), 'killed', '1000']);
      await holder.says('held');
      await holder.kill();
      const next = await app.locks.acquire('killed', { wait: 5_000 });
      await next.release();
    });
  });

  describe('Redis that hangs', () => {
    it('cannot delay the signal beyond the deadline', async () => {
      let aborted = false;
      const lost = app.locks.withLock('hung', { ttl: 1_000 }, async (lock) => {
        server.process.pause();
        lock.signal.addEventListener('abort', () => (aborted = true));
        await eventually(() => aborted);
        expect(lock.held).toBe(false);
        return 'done';
      });
      await expect(lost).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    });

    it('fails each attempt in time instead of hanging', async () => {
      server.process.pause();
      await expect(app.locks.tryAcquire('hung')).rejects.toBeInstanceOf(LockBackendError);
      await expect(app.locks.acquire('hung', { wait: 0 })).rejects.toBeInstanceOf(LockBackendError);
      const waitStart = performance.now();
      await expect(app.locks.acquire('hung', { wait: 1_000 })).rejects.toBeInstanceOf(LockBackendError);
      expect(performance.now() - waitStart).toBeGreaterThan(950);
    });

    it('leaves no lock held by what it carries out when it goes on', async () => {
      server.process.pause();
      await expect(app.locks.tryAcquire('resumed')).rejects.toBeInstanceOf(LockBackendError);
      server.process.resume();
      await eventually(async () => !(await app.locks.isLocked('resumed').catch(() => true)), { within: 10_000 });
    });

    it('does not delay a result: the release is awaited once, then repeated in the background', async () => {
      const result = await app.locks.withLock('slow-release', { ttl: 10_000 }, async () => {
        server.process.pause();
        return 'done';
      });
      // Redis still hangs.
      expect(result).toBe('done');
      server.process.resume();
      await eventually(async () => !(await app.locks.isLocked('slow-release').catch(() => true)));
    });
  });

  describe('Redis that is killed and comes back', () => {
    it('ends the waits in time, and serves later ones', async () => {
      const holder = await app.locks.acquire('restart', { ttl: 60_000 });
      const waiting = app.locks.acquire('restart', { wait: 1_000 }).catch((error: unknown) => error);
      await server.process.kill();
      expect(await waiting).toBeInstanceOf(LockBackendError);
      const again = await startRedisServer({ port: server.port });
      try {
        const next = await app.locks.acquire('other', { wait: 5_000 });
        await next.release();
        // It came back empty: the holder learns by its next renewal or when it releases, never by silence.
        await expect(holder.release()).rejects.toBeInstanceOf(LockLostError);
      } finally {
        await again.stop();
      }
    });

    it('serves a waiter that waits through the restart', async () => {
      await app.locks.acquire('through', { ttl: 60_000 });
      const waiting = app.locks.acquire('through', { wait: 10_000 });
      await server.process.kill();
      const again = await startRedisServer({ port: server.port });
      try {
        const lock = await waiting;
        expect(lock.held).toBe(true);
        await lock.release();
      } finally {
        await again.stop();
      }
    });

    it('loses the locks from before the restart, and renews those after it', async () => {
      const before = await app.locks.acquire('same', { ttl: 1_000 });
      await server.process.kill();
      const again = await startRedisServer({ port: server.port });
      try {
        await eventually(() => before.signal.aborted);
        await expect(before.release()).rejects.toBeInstanceOf(LockLostError);
        const after = await app.locks.acquire('same', { ttl: 2_000, wait: 10_000 });
        await sleep(2_500);
        expect(after.held).toBe(true);
        expect(await app.locks.tryAcquire('same', { reentrant: false })).toBeNull();
        await after.release();
      } finally {
        await again.stop();
      }
    });
  });

  describe('a key that a foreign client changed', () => {
    it('makes the lock lost at the next renewal, for good', async () => {
      const plain = new Redis(server.url);
      const deleted = await app.locks.acquire('deleted', RENEWED_OFTEN);
      const replaced = await app.locks.acquire('replaced', RENEWED_OFTEN);
      await plain.del('lock:{deleted}');
      await plain.set('lock:{replaced}', 'somebody', 'PX', 60_000);
      await eventually(() => deleted.signal.aborted && replaced.signal.aborted);
      expect(deleted.signal.reason).toMatchObject({ reason: 'taken', fencingToken: deleted.fencingToken });
      await expect(replaced.release()).rejects.toMatchObject({ reason: 'taken' });
      await expect(deleted.release()).rejects.toBeInstanceOf(LockLostError);
      expect(await plain.get('lock:{replaced}')).toBe('somebody');
      expect(await plain.exists('lock:{deleted}')).toBe(0);
      plain.disconnect();
    });

    it('is reported by release if no renewal found it before', async () => {
      const plain = new Redis(server.url);
      const lock = await app.locks.acquire('taken', { ttl: 60_000 });
      await plain.set('lock:{taken}', 'somebody', 'PX', 60_000);
      await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
      expect(await plain.get('lock:{taken}')).toBe('somebody');
      plain.disconnect();
    });

    it('rejects the caller when the lock is released within its lease', async () => {
      const plain = new Redis(server.url);
      const owners: (string | null)[] = [];
      for (const by of ['DEL', 'SET'] as const) {
        const result = app.locks.withLock('robbed', { ttl: 60_000 }, async () => {
          await (by === 'DEL' ? plain.del('lock:{robbed}') : plain.set('lock:{robbed}', 'somebody', 'PX', 60_000));
          return 'done';
        });
        await expect(result).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
        owners.push(await plain.get('lock:{robbed}'));
      }
      expect(owners).toEqual([null, 'somebody']);
      plain.disconnect();
    });
  });

  describe('a wall clock that jumps forward, as after a suspended machine wakes', () => {
    afterEach(() => jest.restoreAllMocks());

    it('counts against the lease', async () => {
      const lock = await app.locks.acquire('suspended', { ttl: 60_000 });
      const now = Date.now.bind(Date);
      jest.spyOn(Date, 'now').mockImplementation(() => now() + 3_600_000);
      expect(lock.held).toBe(false);
      expect(lock.remaining()).toBe(0);
      expect(lock.signal.aborted).toBe(true);
      await expect(lock.release()).rejects.toMatchObject({ reason: 'expired' });
    });

    it('aborts the signal soon, even if the holder reads nothing', async () => {
      const lock = await app.locks.acquire('unread', { ttl: 60_000 });
      const told = new Promise<void>((resolve) => lock.signal.addEventListener('abort', () => resolve()));
      const now = Date.now.bind(Date);
      jest.spyOn(Date, 'now').mockImplementation(() => now() + 3_600_000);
      await told;
      await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    });

    it('does not count when it goes back', async () => {
      const lock = await app.locks.acquire('back', { ttl: 60_000 });
      const now = Date.now.bind(Date);
      jest.spyOn(Date, 'now').mockImplementation(() => now() - 3_600_000);
      expect(lock.held).toBe(true);
      expect(lock.remaining()).toBeGreaterThan(50_000);
      expect(lock.remaining()).toBeLessThanOrEqual(60_000);
      await lock.release();
    });
  });
});

describe('an answer that comes late', () => {
  /** The event loop stands still while an answer of Redis arrives: timers come before it, and must not be believed. */

  let server: RedisServer;
  let client: Redis;
  let plain: Redis;
  let app: LockApp;
  /** Runs once, right after the next command of this kind was sent. */
  let afterSend: { isIt: (sha1: string) => boolean; run: () => void } | undefined;

  /** Renewed when half of the lease is left: it ends during a standstill, and the renewal gives a whole one. */
  const RENEWED_LATE: LockOptions = { ttl: 3_000, renew: { interval: 1_500 } };
  const STALL = 1_700;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
    client = new Redis(server.url);
    const sendCommand = client.sendCommand.bind(client);
    Object.assign(client, {
      sendCommand: (...sent: Parameters<typeof sendCommand>) => {
        const reply = sendCommand(...sent);
        const [{ name, args }] = sent;
        if (name === 'evalsha' && afterSend?.isIt(String(args[0]))) {
          const { run } = afterSend;
          afterSend = undefined;
          run();
        }
        return reply;
      },
    });
    app = await startLockApp({ redis: client, commandTimeout: 500 });
  });
  beforeEach(() => {
    afterSend = undefined;
    app.logger.lines.length = 0;
  });
  afterAll(async () => {
    server.process.resume();
    await app.close();
    client.disconnect();
    plain.disconnect();
    await server.stop();
  });

  function standStill(ms = STALL): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  }

  function afterRenewal(run: () => void): void {
    afterSend = { isIt: (sha1) => sha1 === RENEW.sha1, run };
  }

  it('keeps a lock whose renewal was answered meanwhile, and does not count as held before that answer is read', async () => {
    const seen: unknown[] = [];
    const lock = await app.locks.acquire('kept', RENEWED_LATE);
    let aborted = false;
    lock.signal.addEventListener('abort', () => (aborted = true));
    afterRenewal(() => {
      standStill();
      seen.push(lock.held, lock.remaining());
    });
    await eventually(() => seen.length > 0);
    await sleep(20);
    expect(seen).toEqual([false, 0]);
    expect(lock.held).toBe(true);
    expect(lock.remaining()).toBeGreaterThan(0);
    expect(aborted).toBe(false);
    expect(app.logger.lines).toEqual([]);
    await lock.release();
  });

  it('lets the result of a body stand that ended in that very turn', async () => {
    const result = app.locks.withLock('body', RENEWED_LATE, async () => {
      await new Promise<void>((resolve) => {
        afterRenewal(() => {
          standStill();
          resolve();
        });
      });
      return 'done';
    });
    expect(await result).toBe('done');
  });

  it('lets a lock be released in that very turn', async () => {
    const lock = await app.locks.acquire('released', RENEWED_LATE);
    const released = new Promise<void>((resolve, reject) => {
      afterRenewal(() => {
        standStill();
        lock.release().then(resolve, reject);
      });
    });
    await released;
    expect(await plain.exists('lock:{released}')).toBe(0);
  });

  it.each([
    [
      'assertHeld()',
      (lock: Lock) => expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ reason: 'expired' })),
    ],
    ['signal', (lock: Lock) => expect(lock.signal.aborted).toBe(true)],
  ])('has lost it for good once %s has said so', async (_what, ask) => {
    const lock = await app.locks.acquire('told', RENEWED_LATE);
    let asked = false;
    afterRenewal(() => {
      standStill();
      ask(lock);
      asked = true;
    });
    await eventually(() => asked);
    await sleep(20);
    expect(lock.held).toBe(false);
    await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
  });

  it('has lost it if no answer had arrived', async () => {
    const lock = await app.locks.acquire('unanswered', RENEWED_LATE);
    server.process.pause();
    afterRenewal(() => standStill());
    try {
      await eventually(() => !afterSend);
      await eventually(() => lock.signal.aborted, { within: 500 });
      expect(lock.held).toBe(false);
      await expect(lock.release()).rejects.toMatchObject({ reason: 'expired' });
    } finally {
      server.process.resume();
    }
  });

  it.each([{ wait: 0 }, { wait: 5_000 }])('takes a lock that was granted in time, with %j', async (options) => {
    afterSend = { isIt: () => true, run: () => standStill(800) };
    const lock = await app.locks.acquire('granted', options);
    expect(lock.held).toBe(true);
    expect(app.logger.lines).toEqual([]);
    await lock.release();
  });
});
