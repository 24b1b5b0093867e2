import { setTimeout as sleep } from 'node:timers/promises';
import { LockConfigError, LockLostError, LockTimeoutError, LockUpgradeError, type Lock } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { eachLockBackend, locks, others } from './each-lock-backend.js';

const READ = { mode: 'read' } as const;
const TRY_TO_READ = { mode: 'read', wait: 0 } as const;

eachLockBackend(() => {
  describe('readers and writers', () => {
    it('lets many readers hold a name at one time, in one process and in several', async () => {
      const held = await Promise.all([locks, locks, others, others].map((each) => each.acquire('many', READ)));
      expect(held.every((lock) => lock.held)).toBe(true);
      expect(await locks.inspect('many')).toMatchObject({ owner: 'readers', readers: 2 });
      await Promise.all(held.map((lock) => lock.release()));
      expect(await locks.isLocked('many')).toBe(false);
    });

    it('shows a name that is read in the list of locks', async () => {
      const [one, two] = [await locks.acquire('listed', READ), await others.acquire('listed', READ)];
      const { locks: listed } = await locks.list('listed');
      expect(listed).toMatchObject([{ owner: 'readers', readers: 2 }]);
      await Promise.all([one.release(), two.release()]);
    });

    it('keeps a writer out until the last reader has ended', async () => {
      const [one, two] = [await locks.acquire('last', READ), await others.acquire('last', READ)];
      expect(await locks.tryAcquire('last')).toBeNull();
      const writer = others.acquire('last');
      await one.release();
      await sleep(60);
      expect(await locks.inspect('last')).toMatchObject({ owner: 'readers', readers: 1 });
      await two.release();
      const written = await writer;
      expect((await locks.inspect('last'))?.readers).toBeUndefined();
      await written.release();
    });

    it('keeps readers out while a writer holds the name', async () => {
      const writer = await locks.acquire('written');
      expect(await locks.tryAcquire('written', READ)).toBeNull();
      expect(await others.tryAcquire('written', READ)).toBeNull();
      await expect(others.acquire('written', { ...READ, wait: 100 })).rejects.toBeInstanceOf(LockTimeoutError);
      await writer.release();
      expect(await others.withLock('written', READ, async () => 'read')).toBe('read');
    });

    it('does not let new readers in while a writer waits, and lets all that waited in together after it', async () => {
      const reader = await locks.acquire('waiting', READ);
      const writer = others.acquire('waiting');
      await eventually(async () => (await others.inspect('waiting'))?.waiting === 1);
      await eventually(async () => (await others.tryAcquire('waiting', TRY_TO_READ)) === null);
      await eventually(async () => {
        const late = await locks.tryAcquire('waiting', TRY_TO_READ);
        await late?.release();
        return late === null;
      });
      const readers = [locks, locks, others, others].map((each) => each.acquire('waiting', READ));
      const secondWriter = locks.acquire('waiting', { wait: 20_000 });
      await eventually(async () => ((await others.inspect('waiting'))?.waiting ?? 0) >= 3);
      await eventually(async () => ((await locks.inspect('waiting'))?.waiting ?? 0) >= 3);
      await reader.release();
      const written = await writer;
      await sleep(30);
      await written.release();
      const read = await Promise.all(readers);
      expect(read.every((lock) => lock.held)).toBe(true);
      await Promise.all(read.map((lock) => lock.release()));
      await (await secondWriter).release();
      expect(await locks.isLocked('waiting')).toBe(false);
    });

    it('lets waiting readers in when the writer before them gives up', async () => {
      const reader = await locks.acquire('given-up', READ);
      const writer = others.acquire('given-up', { wait: 400 });
      await eventually(async () => (await others.tryAcquire('given-up', TRY_TO_READ)) === null);
      const second = others.acquire('given-up', { ...READ, wait: 20_000 });
      await expect(writer).rejects.toBeInstanceOf(LockTimeoutError);
      await (await second).release();
      expect(reader.held).toBe(true);
      await reader.release();
    });

    it('starves neither side while both never stop', async () => {
      const limit = performance.now() + 60_000;
      const counts = { read: 0, write: 0 };
      const goOn = () => Math.min(counts.read, counts.write) < 40 && performance.now() < limit;
      let reading = 0;
      let writing = 0;
      let mixed = 0;
      const reader = async (each: typeof locks) => {
        while (goOn()) {
          await each.withLock('busy', { ...READ, wait: 60_000 }, async () => {
            reading += 1;
            if (writing > 0) mixed += 1;
            await sleep(2);
            reading -= 1;
            counts.read += 1;
          });
        }
      };
      const writer = async (each: typeof locks) => {
        while (goOn()) {
          await each.withLock('busy', { wait: 60_000 }, async () => {
            writing += 1;
            if (reading > 0 || writing > 1) mixed += 1;
            await sleep(2);
            writing -= 1;
            counts.write += 1;
          });
        }
      };
      await Promise.all([locks, others].flatMap((each) => [reader(each), reader(each), writer(each)]));
      expect(mixed).toBe(0);
      expect(counts.read).toBeGreaterThanOrEqual(40);
      expect(counts.write).toBeGreaterThanOrEqual(40);
    });
  });

  describe('the lease of a reader', () => {
    it('ends by itself when its holder stops renewing, and lets a writer in then', async () => {
      const lapsed = await locks.acquire('lapsed', { ...READ, ttl: 400, renew: false });
      const writer = await others.acquire('lapsed');
      expect(lapsed.held).toBe(false);
      expect(lapsed.signal.reason).toBeInstanceOf(LockLostError);
      await expect(lapsed.release()).rejects.toBeInstanceOf(LockLostError);
      expect(writer.held).toBe(true);
      await writer.release();
    });

    it('is renewed while it is held, for each of the readers of a process', async () => {
      const short = await locks.acquire('renewed-read', { ...READ, ttl: 2_000 });
      const limited = await locks.acquire('renewed-read', { ...READ, ttl: 500, renew: false });
      await eventually(() => !limited.held);
      expect(limited.signal.aborted).toBe(true);
      await sleep(2_200);
      expect(short.held).toBe(true);
      expect(await others.tryAcquire('renewed-read')).toBeNull();
      await short.extend(10_000);
      expect(short.remaining()).toBeGreaterThan(8_000);
      await short.release();
      expect(await locks.isLocked('renewed-read')).toBe(false);
    });

    it('is not ended by that of another reader', async () => {
      const long = await locks.acquire('longer-read', { ...READ, ttl: 10_000 });
      await others.acquire('longer-read', { ...READ, ttl: 200, renew: false });
      await sleep(300);
      expect(long.held).toBe(true);
      expect(await others.tryAcquire('longer-read')).toBeNull();
      expect(await others.inspect('longer-read')).toMatchObject({ readers: 1 });
      await long.release();
      await expect(others.tryAcquire('longer-read').then((lock) => lock?.release())).resolves.toBeUndefined();
    });

    it('ends for all readers by a forced release', async () => {
      const [one, two] = [await locks.acquire('forced', READ), await locks.acquire('forced', READ)];
      expect(await locks.forceRelease('forced')).toBe(true);
      expect([one.held, two.held]).toEqual([false, false]);
      expect(one.signal.aborted).toBe(true);
      await expect(two.release()).rejects.toMatchObject({ reason: 'taken' });
      await (await others.acquire('forced')).release();
    });

    it('ends after maxHold for one reader, and not for another', async () => {
      const [one, two] = [
        await locks.acquire('max-read', { ...READ, maxHold: 200 }),
        await locks.acquire('max-read', READ),
      ];
      await eventually(() => one.signal.aborted);
      expect(one.signal.reason).toMatchObject({ reason: 'maxHold' });
      expect(two.held).toBe(true);
      await two.release();
      expect(await locks.isLocked('max-read')).toBe(false);
    });
  });

  describe('the fencing token of a reader', () => {
    it('is above those of earlier writers and below those of later ones', async () => {
      const tokens: number[] = [];
      const note = async (lock: Lock) => {
        tokens.push(lock.fencingToken);
      };
      await locks.withLock('fenced', note);
      await others.withLock('fenced', READ, note);
      await locks.withLock('fenced', note);
      await locks.withLock('fenced', READ, note);
      await others.withLock('fenced', note);
      expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
      expect(new Set(tokens).size).toBe(5);
    });

    it('is shared by readers that join each other', async () => {
      const [one, two] = [await locks.acquire('same', READ), await others.acquire('same', READ)];
      expect(one.fencingToken).toBe(two.fencingToken);
      await Promise.all([one.release(), two.release()]);
    });
  });

  describe('several names', () => {
    it('are read together, all or none, and have one token below those of later writers', async () => {
      const both = await locks.acquire(['read:a', 'read:b'], READ);
      const other = await others.acquire(['read:b', 'read:c'], READ);
      expect(await others.tryAcquire('read:a')).toBeNull();
      expect(await locks.tryAcquire(['read:c', 'read:d'])).toBeNull();
      expect(await locks.isLocked('read:d')).toBe(false);
      await both.release();
      const writer = await others.acquire('read:a');
      expect(writer.fencingToken).toBeGreaterThan(both.fencingToken);
      expect(await others.tryAcquire(['read:a', 'read:c'], READ)).toBeNull();
      await writer.release();
      await other.release();
      for (const name of ['read:a', 'read:b', 'read:c']) expect(await locks.isLocked(name)).toBe(false);
    });

    it('wait for a writer of one of them', async () => {
      const writer = await locks.acquire('wait:b');
      const both = others.acquire(['wait:a', 'wait:b'], { ...READ, wait: 20_000 });
      await sleep(50);
      await writer.release();
      await (await both).release();
      expect(await locks.isLocked('wait:a')).toBe(false);
    });
  });

  describe('re-entry', () => {
    it('lets a nested read in on the lease of the read or the write around it', async () => {
      await locks.withLock('nest', READ, async (outer) => {
        await locks.withLock('nest', TRY_TO_READ, async (inner) => expect(inner.owner).toBe(outer.owner));
      });
      await locks.withLock('nest', async (outer) => {
        await locks.withLock('nest', TRY_TO_READ, async (inner) => {
          expect(inner.fencingToken).toBe(outer.fencingToken);
          await locks.withLock('nest', { wait: 0 }, async (innermost) => expect(innermost.held).toBe(true));
        });
        expect(await others.tryAcquire('nest', READ)).toBeNull();
      });
      expect(await locks.isLocked('nest')).toBe(false);
    });

    it('lets nested reads of a read run at one time', async () => {
      const [entered, gate] = [new Gate(), new Gate()];
      await locks.withLock('siblings-read', READ, async () => {
        const first = locks.withLock('siblings-read', READ, async () => {
          entered.open();
          await gate.opened;
        });
        await entered.opened;
        await locks.withLock('siblings-read', TRY_TO_READ, async () => gate.open());
        await first;
      });
    });

    it('refuses at once to write inside of a read', async () => {
      await locks.withLock('upgrade', READ, async () => {
        const upgrade = locks.withLock('upgrade', async () => {});
        await expect(upgrade).rejects.toBeInstanceOf(LockUpgradeError);
        await expect(locks.acquire(['upgrade', 'upgrade:2'])).rejects.toMatchObject({ code: 'LOCK_UPGRADE' });
      });
      await locks.withLock('upgrade', async () => {});
      expect(await locks.isLocked('upgrade:2')).toBe(false);
    });

    it('downgrades when the write hold ends before the read hold inside of it', async () => {
      let read!: Lock;
      const writer = await locks.withLock('downgrade', async (lock) => {
        read = await locks.acquire('downgrade', READ);
        return lock;
      });
      expect(writer.held).toBe(false);
      expect(read.held).toBe(true);
      const other = await others.acquire('downgrade', READ);
      expect(other.fencingToken).toBeGreaterThan(writer.fencingToken);
      expect(await others.tryAcquire('downgrade')).toBeNull();
      await read.extend(20_000);
      expect(read.remaining()).toBeGreaterThan(15_000);
      await read.release();
      expect(await locks.inspect('downgrade')).toMatchObject({ readers: 1 });
      await other.release();
      expect(await locks.isLocked('downgrade')).toBe(false);
    });

    it('lets waiting readers in with a downgrade, and a waiting writer after them', async () => {
      let read!: Lock;
      let second!: Promise<Lock>;
      let writer!: Promise<Lock>;
      await locks
        .withLock('downgrade-waiting', async () => {
          read = await locks.acquire('downgrade-waiting', READ);
          second = others.acquire('downgrade-waiting', { ...READ, wait: 20_000 });
          writer = locks.acquire('downgrade-waiting', { wait: 20_000, reentrant: true });
          await eventually(async () => ((await locks.inspect('downgrade-waiting'))?.waiting ?? 0) >= 1);
        })
        .catch(() => {});
      void writer.then((lock) => lock.release()).catch(() => {});
      expect(read.held).toBe(true);
      await (await second).release();
      await read.release();
      await eventually(async () => !(await locks.isLocked('downgrade-waiting')));
    });
  });

  it('refuses options that make no sense for readers', async () => {
    await expect(locks.acquire('options', { ...READ, minHold: 100 })).rejects.toBeInstanceOf(LockConfigError);
    await expect(locks.acquire('options', { ...READ, order: 'fifo' })).rejects.toBeInstanceOf(LockConfigError);
    const wrong = { mode: 'shared' } as unknown as typeof READ;
    await expect(locks.acquire('options', wrong)).rejects.toThrow(/mode.*shared.*read/);
  });
});
