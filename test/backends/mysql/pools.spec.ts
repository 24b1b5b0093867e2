import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';
import getPort from 'get-port';
import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool, type PoolOptions } from 'mysql2/promise';
import { getLock, leaseTable, type MysqlConnection } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type MariadbServer, startMariadbServer } from '../../support/servers/mariadb-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

describe('a pool of the application', () => {
  let server: MariadbServer;
  let admin: Pool;
  beforeAll(async () => {
    server = await startMariadbServer();
    admin = createPool({ uri: server.url, connectionLimit: 3 });
  }, 60_000);
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const newTicket = () => `${randomUUID()}:1`;
  const take = (backend: OpenBackend, name: string, ticket = newTicket()) =>
    backend.acquire({ name, ticket, ttl: 60_000 });

  /** Runs `use` while the application has the only connection of the pool. */
  async function starved(options: PoolOptions, use: (pool: Pool) => Promise<void>): Promise<void> {
    const pool = createPool({ uri: server.url, connectionLimit: 1, ...options });
    const connection = await pool.getConnection();
    await use(pool);
    connection.release();
    expect((await pool.query('SELECT 1 AS one'))[0]).toEqual([{ one: 1 }]);
    await pool.end();
  }

  describe('while the application has all connections of its pool', () => {
    it.each([
      ['calls wait in the pool', {}],
      ['no call may wait in the pool', { waitForConnections: false }],
      ['no further call may wait in the pool', { queueLimit: 1 }],
    ])('a lease is taken, renewed and released, where %s', async (_where, options) => {
      await starved(options, async (pool) => {
        const backend = openBackend(leaseTable(pool));
        const waiting = 'queueLimit' in options ? pool.query('SELECT 1') : undefined;
        const [name, ticket] = [randomUUID(), newTicket()];
        expect(await take(backend, name, ticket)).toMatchObject({ status: 'granted' });
        const request = { name, ticket, ttl: 60_000 };
        for (const renewal of Array.from({ length: 20 }, () => backend.renew([request])[0])) {
          expect(await renewal).toMatchObject({ status: 'renewed' });
        }
        expect(await backend.release({ name, ticket })).toMatchObject({ status: 'released' });
        await backend.close();
        void waiting?.catch(() => {});
      });
    });

    it('one call of the backend waits in the pool, and statements return to it when a connection is free', async () => {
      const pool = createPool({ uri: server.url, connectionLimit: 1 });
      const connection = await pool.getConnection();
      let enqueued = 0;
      let acquired = 0;
      pool.on('enqueue', () => (enqueued += 1));
      pool.on('acquire', () => (acquired += 1));
      const backend = openBackend(leaseTable(pool));
      for (let tries = 0; tries < 20; tries += 1) await take(backend, randomUUID());
      expect(enqueued).toBe(1);
      expect(acquired).toBe(0);
      connection.release();
      await eventually(async () => {
        await take(backend, randomUUID());
        return acquired > 0;
      });
      await backend.close();
      await pool.end();
    });

    it('getLock(pool) tells who has a name', async () => {
      const holder = openBackend(getLock(server.url));
      const [name, ticket] = [randomUUID(), newTicket()];
      await take(holder, name, ticket);
      await starved({}, async (pool) => {
        const backend = openBackend(getLock(pool));
        expect(await take(backend, name)).toMatchObject({ status: 'busy', owner: ticket });
        expect(await backend.release({ name, ticket: newTicket() })).toMatchObject({ status: 'taken' });
        await backend.close();
      });
      await holder.close();
    });
  });

  it.each<[string, (uri: string) => MysqlConnection]>([
    ['connections of its own', (uri) => uri],
    ['a pool', (uri) => createCallbackPool({ uri })],
    ['a pool with promises', (uri) => createPool({ uri })],
  ])('asks for all locks at once when %s broke, as in a failover that lost them', async (_which, make) => {
    const proxy = await FaultProxy.start(server.port);
    const connection = make(`mysql://root@127.0.0.1:${proxy.port}/test`);
    const app = await startLockApp({ backend: leaseTable(connection) });
    // The first looks are due after 5 s.
    const locks = await Promise.all(
      [{}, { renew: false }].map((options, index) => app.locks.acquire(`lost:${index}`, { ttl: '10m', ...options })),
    );
    const kept = await app.locks.acquire('kept', { ttl: '10m' });
    proxy.refuse();
    await admin.query("UPDATE nest_redis_lock SET owner = 'other:1' WHERE owner IN (?)", [
      locks.map(({ owner }) => owner),
    ]);
    proxy.accept();
    await eventually(() => locks.every(({ signal }) => signal.aborted), { within: 2_500 });
    expect(kept.held).toBe(true);
    await kept.release();
    await admin.query("DELETE FROM nest_redis_lock WHERE owner = 'other:1'");
    await app.close();
    if (typeof connection === 'object' && 'end' in connection) await connection.end();
    await proxy.stop();
  });

  const endOf = (pool: Pool | ReturnType<typeof createCallbackPool>): Promise<void> =>
    'pool' in pool ? pool.end() : pool.promise().end();
  const POOLS = [
    ['mysql2', () => createCallbackPool(server.url)],
    ['mysql2/promise', () => createPool(server.url)],
  ] as const;
  it.each(
    POOLS.flatMap(([library, open]) =>
      ([leaseTable, getLock] as const).map((make) => [make.name, library, make, open] as const),
    ),
  )(
    '%s(pool) of %s gives its locks back once the application has ended the pool',
    async (_kind, _library, make, open) => {
      const pool = open();
      const ours = await startLockApp({ backend: make(pool) });
      const next = await startLockApp({ backend: make(server.url) });
      const locks = [await ours.locks.acquire('pool ending'), await ours.locks.acquire('pool ended')];
      const end = endOf(pool);
      await locks[0]?.release();
      await end;
      await locks[1]?.release();
      for (const name of ['pool ending', 'pool ended']) {
        const lock = await next.locks.acquire(name, { wait: 0 });
        expect(await ours.locks.inspect(name)).toMatchObject({ owner: lock.owner });
        await lock.release();
      }
      await ours.close();
      await next.close();
    },
  );

  it('names an exhausted pool as the reason why there is no answer', async () => {
    const backend = openBackend(leaseTable({ uri: server.url, connectionLimit: 1 }));
    const names = [randomUUID(), randomUUID()] as const;
    for (const name of names) await take(backend, name);
    expect(backend.diagnose?.()?.message).toMatch('does not answer; is it busy or paused');
    const foreign = await admin.getConnection();
    await foreign.query('BEGIN');
    await foreign.query('SELECT * FROM nest_redis_lock FOR UPDATE');
    const taking = names.map((name) => take(backend, name));
    await eventually(
      () => backend.diagnose?.()?.message.includes('wait for one: raise its "connectionLimit"') ?? false,
    );
    await foreign.query('ROLLBACK');
    foreign.release();
    await Promise.allSettled(taking);
    await backend.close();
  });

  it('gives up a statement that gets no connection in time, and does not send it later', async () => {
    const proxy = await FaultProxy.start(server.port);
    const backend = openBackend(leaseTable({ uri: `mysql://root@127.0.0.1:${proxy.port}/test`, connectionLimit: 1 }));
    await take(backend, 'before');
    proxy.hold();
    const first = take(backend, 'first');
    const late = take(backend, 'late');
    const refused = Promise.all([
      expect(first).rejects.toThrow('did not answer within'),
      expect(late).rejects.toThrow('no connection within'),
    ]);
    await refused;
    proxy.reset();
    proxy.heal();
    await eventually(async () => {
      try {
        return (await take(backend, 'after')).status === 'granted';
      } catch {
        return false;
      }
    });
    expect(await backend.inspect({ name: 'late' })).toBeNull();
    await backend.close();
    await proxy.stop();
  });
});

describe('the service of locks', () => {
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
});

it.each([leaseTable, getLock])(
  'a start that nothing answers prints its cause twice: in its message, and as the cause',
  async (open) => {
    const backend = open(`mysql://root@127.0.0.1:${await getPort()}/locks`);
    const error = await startLockApp({ backend, failFast: true, cache: false }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'LOCK_BACKEND' });
    expect(inspect(error).split('connect ECONNREFUSED')).toHaveLength(3);
  },
);
