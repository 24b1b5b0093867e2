import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool } from 'mysql2/promise';
import { leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let pool: Pool;
beforeAll(async () => {
  server = await startMariadbServer();
  pool = createPool({ uri: server.url, connectionLimit: 5 });
  await pool.query('CREATE TABLE stock (id INT PRIMARY KEY, sold INT NOT NULL, fence BIGINT NOT NULL)');
}, 60_000);
afterAll(async () => {
  await pool.end();
  await server.stop();
});

describe('two modules', () => {
  let one: LockApp;
  let two: LockApp;
  beforeAll(async () => {
    [one, two] = await Promise.all([
      startLockApp({ backend: leaseTable(server.url) }),
      startLockApp({ backend: leaseTable(server.url) }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([one.close(), two.close()]);
  });

  it('exclude each other, and each later holder has a larger token', async () => {
    await pool.query('REPLACE INTO stock VALUES (1, 0, 0)');
    const sell = async (app: LockApp) => {
      await app.locks.withLock('stock:1', { wait: 60_000 }, async (lock) => {
        const [rows] = await pool.query('SELECT sold, fence FROM stock WHERE id = 1');
        const [{ sold, fence }] = rows as [{ sold: number; fence: number }];
        expect(lock.fencingToken).toBeGreaterThan(fence);
        await pool.query('UPDATE stock SET sold = ?, fence = ? WHERE id = 1', [sold + 1, lock.fencingToken]);
      });
    };
    await Promise.all(Array.from({ length: 100 }, (_each, index) => sell(index % 2 === 0 ? one : two)));
    const [rows] = await pool.query('SELECT sold FROM stock WHERE id = 1');
    expect(rows).toEqual([{ sold: 100 }]);
    await eventually(async () => !(await one.locks.isLocked('stock:1')));
  });

  it('take turns, also when the callers of one process leave it no time to ask who waits', async () => {
    const served = [0, 0];
    const stop = new AbortController();
    const callers = [one, two].flatMap((app, process) =>
      Array.from({ length: 5 }, async () => {
        while (!stop.signal.aborted) {
          await app.locks.withLock('turns', { wait: 60_000 }, async () => {
            served[process] = (served[process] ?? 0) + 1;
          });
        }
      }),
    );
    await eventually(() => served.every((count) => count > 300));
    stop.abort();
    await Promise.all(callers);
  });

  it('take several names without waiting for each other', async () => {
    let holders = 0;
    const move = (app: LockApp, names: string[]) =>
      app.locks.withLock(names, { wait: 60_000 }, async () => {
        holders += 1;
        expect(holders).toBe(1);
        await new Promise((resolve) => setTimeout(resolve, 2));
        holders -= 1;
      });
    await Promise.all(
      Array.from({ length: 20 }, (_each, index) =>
        index % 2 === 0 ? move(one, ['account:1', 'account:2']) : move(two, ['account:2', 'account:1']),
      ),
    );
    await eventually(async () => !(await two.locks.isLocked('account:1')));
  });

  it('tell a holder of its loss by force, and the next one gets in', async () => {
    const lock = await one.locks.acquire('forced', { renew: { interval: 50 } });
    expect(await two.locks.forceRelease('forced')).toBe(true);
    await eventually(() => lock.signal.aborted);
    expect(lock.signal.reason).toMatchObject({ reason: 'taken' });
    await (await two.locks.acquire('forced')).release();
  });

  it('refuse a caller with the owner and the lease that is left', async () => {
    const lock = await one.locks.acquire('busy', { ttl: 60_000 });
    await expect(two.locks.acquire('busy', { wait: 50 })).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
      message: expect.stringContaining(lock.owner),
    });
    expect(await two.locks.tryAcquire('busy')).toBeNull();
    await lock.release();
  });

  it('keep a name for its minimum hold', async () => {
    await one.locks.withLock('report', { minHold: 300 }, async () => {});
    expect(await two.locks.tryAcquire('report')).toBeNull();
    await (await two.locks.acquire('report', { wait: 10_000 })).release();
  });
});

it.each([
  ['a pool', () => createCallbackPool({ uri: server.url, connectionLimit: 1 })],
  ['a pool of promises', () => createPool({ uri: server.url, connectionLimit: 1 })],
])('uses %s of one connection for 20 names, and leaves it open', async (_kind, open) => {
  const given = open();
  const app = await startLockApp({ backend: leaseTable(given) });
  const cycles = Array.from({ length: 300 }, (_each, index) =>
    app.locks.withLock(`pooled:${(index * 7) % 20}`, { wait: 60_000 }, async () => {}),
  );
  await Promise.all(cycles);
  await app.close();
  const plain = 'promise' in given ? given.promise() : given;
  expect((await plain.query('SELECT 1 AS one'))[0]).toEqual([{ one: 1 }]);
  await plain.end();
});

it('closes the connections that it opened', async () => {
  const app = await startLockApp({
    backend: leaseTable({ uri: server.url, connectAttributes: { program_name: 'own' } }),
  });
  await app.locks.withLock('closing', async () => {});
  const others = async () => {
    const [rows] = await pool.query(
      "SELECT id FROM information_schema.processlist WHERE info NOT LIKE '%processlist%'",
    );
    return (rows as unknown[]).length;
  };
  await app.close();
  await eventually(async () => (await others()) === 0);
});
