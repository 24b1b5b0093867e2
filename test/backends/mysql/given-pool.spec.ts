import { randomUUID } from 'node:crypto';
import { createPool, type Pool, type PoolOptions } from 'mysql2/promise';
import type { LockBackend } from 'nest-redis-lock';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

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
const take = (backend: LockBackend, name: string, ticket = newTicket()) =>
  backend.acquire({ names: [name], ticket, ttl: 60_000 });

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
      const backend = leaseTable(pool);
      const waiting = 'queueLimit' in options ? pool.query('SELECT 1') : undefined;
      const [name, ticket] = [randomUUID(), newTicket()];
      expect(await take(backend, name, ticket)).toMatchObject({ status: 'granted' });
      const request = { names: [name], ticket, ttl: 60_000 };
      for (const renewal of Array.from({ length: 20 }, () => backend.renew([request])[0])) {
        expect(await renewal).toMatchObject({ status: 'renewed' });
      }
      expect(await backend.release({ names: [name], ticket })).toMatchObject({ status: 'released' });
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
    const backend = leaseTable(pool);
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
    const holder = getLock(server.url);
    const [name, ticket] = [randomUUID(), newTicket()];
    await take(holder, name, ticket);
    await starved({}, async (pool) => {
      const backend = getLock(pool);
      expect(await take(backend, name)).toMatchObject({ status: 'busy', owner: ticket });
      expect(await backend.release({ names: [name], ticket: newTicket() })).toMatchObject({ status: 'taken' });
      await backend.close();
    });
    await holder.close();
  });
});

it('names an exhausted pool as the reason why there is no answer', async () => {
  const backend = leaseTable({ uri: server.url, connectionLimit: 1 });
  const names = [randomUUID(), randomUUID()] as const;
  for (const name of names) await take(backend, name);
  expect(backend.diagnose?.()?.message).toMatch('does not answer; is it busy or paused');
  const foreign = await admin.getConnection();
  await foreign.query('BEGIN');
  await foreign.query('SELECT * FROM nest_redis_lock FOR UPDATE');
  const taking = names.map((name) => take(backend, name));
  await eventually(() => backend.diagnose?.()?.message.includes('wait for one: raise its "connectionLimit"') ?? false);
  await foreign.query('ROLLBACK');
  foreign.release();
  await Promise.allSettled(taking);
  await backend.close();
});

it('gives up a statement that gets no connection in time, and does not send it later', async () => {
  const proxy = await FaultProxy.start(server.port);
  const backend = leaseTable({ uri: `mysql://root@127.0.0.1:${proxy.port}/test`, connectionLimit: 1 });
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
