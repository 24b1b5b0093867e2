import { AsyncResource } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { memory, type Lock, type LockService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { collectGarbage } from '../../support/collect-garbage.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

describe.each(['redis', 'memory'] as const)('what nobody needs any more on %s', (kind) => {
  let app: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    app = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    locks = app.locks;
  });
  afterAll(() => app.close());

  const warnings = (name: string) => app.logger.matching(new RegExp(`^Lock of .*"${name}".*dropped without release`));

  const told = (name: string) =>
    eventually(
      async () => {
        await collectGarbage();
        return warnings(name)[0];
      },
      { within: 20_000 },
    );

  async function forgetToRelease(key: string | string[]): Promise<void> {
    const lock = await locks.acquire(key, { ttl: 3_000 });
    lock.assertHeld();
    lock.signal.addEventListener('abort', () => {});
  }

  it('is reported once, with name and place: a lock that was dropped without release; its lease ends', async () => {
    await forgetToRelease('forgotten');
    expect(await told('forgotten')).toMatch(/Acquired at:\n(.*\n)*.*forgetToRelease/);
    await eventually(async () => !(await locks.isLocked('forgotten')), { within: 10_000 });
    await collectGarbage();
    expect(warnings('forgotten')).toHaveLength(1);
    await (await locks.acquire('forgotten')).release();
  });

  it('is also reported for several names, in a request, and for a name that callers of this process wait for', async () => {
    await new AsyncResource('request').runInAsyncScope(() => forgetToRelease(['left', 'right']));
    const waiting = locks.acquire('left', { wait: 20_000 });
    expect(await told('right')).toContain('"left", "right"');
    await (await waiting).release();
  });

  it('is renewed while it is referenced, and not reported: a lock', async () => {
    const lock = await locks.acquire('kept', { ttl: 4_000 });
    for (let turn = 0; turn < 10; turn++) {
      await sleep(500);
      await collectGarbage();
    }
    expect(lock.held).toBe(true);
    await lock.release();
    await collectGarbage();
    expect(warnings('kept')).toEqual([]);
  });

  it('is renewed, and not told, where the application releases by name: a lock whose Lock nobody keeps', async () => {
    const other = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
    const byName = async (name: string, work: () => Promise<void>) => {
      await other.locks.acquire(name, { ttl: 6_000, renew: { interval: 300 } });
      await work();
      await other.locks.release(name);
    };
    await byName('first', async () => {});
    await byName('second', async () => {
      for (let turn = 0; turn < 13; turn++) {
        await sleep(500);
        await collectGarbage();
      }
    });
    expect(other.logger.matching(/dropped without release/)).toEqual([]);
    await other.close();
  });

  it('is garbage-collected: each run of a job that schedules its next run from inside of the lock', async () => {
    const runs: WeakRef<Lock>[] = [];
    await new Promise<void>((resolve, reject) => {
      const job = async (): Promise<void> => {
        await locks.withLock('job', async (lock) => {
          runs.push(new WeakRef(lock));
          if (runs.length < 60) setImmediate(() => void job().catch(reject));
          else resolve();
          void lock.signal;
        });
      };
      void job().catch(reject);
    });
    await eventually(async () => {
      await collectGarbage();
      return runs.filter((run) => run.deref()).length <= 5;
    });
  });
});
