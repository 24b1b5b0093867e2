import pg from 'pg';
import { LockConfigError, LockTimeoutError } from 'nest-redis-lock';
import { advisory, lockInTransaction } from 'nest-redis-lock/postgres';
import { eventually } from '../../support/eventually.js';
import { startLockApp } from '../../support/lock-app.js';
import { startPostgresServer, type PostgresServer } from '../../support/servers/postgres-server.js';

let server: PostgresServer;
let pool: pg.Pool;
let [client, other]: pg.PoolClient[] = [];
beforeAll(async () => {
  server = await startPostgresServer();
  pool = new pg.Pool({ connectionString: server.url, max: 3 });
});
beforeEach(async () => {
  [client, other] = [await pool.connect(), await pool.connect()];
});
afterEach(async () => {
  for (const used of [client, other]) {
    await used?.query('ROLLBACK');
    used?.release();
  }
});
afterAll(async () => {
  await pool.end();
  await server.stop();
});

const clients = () => [client as pg.PoolClient, other as pg.PoolClient] as const;

/** Resolves when a session waits for an advisory lock. */
async function someoneWaits(): Promise<void> {
  const text = `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`;
  await eventually(async () => (await pool.query(text)).rows.length > 0);
}

it('excludes advisory() until the transaction ends', async () => {
  const [first] = clients();
  const app = await startLockApp({ backend: advisory(server.url) });
  await first.query('BEGIN');
  await lockInTransaction(first, 'order:1');
  expect(await app.locks.tryAcquire('order:1')).toBeNull();
  await first.query('COMMIT');
  const lock = await app.locks.acquire('order:1');
  await first.query('BEGIN');
  await expect(lockInTransaction(first, 'order:1', { wait: 0 })).rejects.toBeInstanceOf(LockTimeoutError);
  await first.query('SELECT 1');
  await expect(lockInTransaction(first, 'order:1', { wait: 50 })).rejects.toBeInstanceOf(LockTimeoutError);
  await first.query('ROLLBACK');
  await lock.release();
  await app.close();
});

it('waits for the transaction that has the name, and restores the time limit of its own', async () => {
  const [first, second] = clients();
  await first.query('BEGIN');
  await lockInTransaction(first, 'order:2');
  await second.query("BEGIN; SET LOCAL lock_timeout = '7s'");
  const waiting = lockInTransaction(second, 'order:2', { wait: '60s' });
  await someoneWaits();
  await first.query('COMMIT');
  await waiting;
  const { rows } = await second.query<{ lock_timeout: string }>('SHOW lock_timeout');
  expect(rows).toEqual([{ lock_timeout: '7s' }]);
});

it('frees with ROLLBACK TO SAVEPOINT what it took after the savepoint', async () => {
  const [first, second] = clients();
  await first.query('BEGIN');
  await lockInTransaction(first, 'before');
  await first.query('SAVEPOINT nest_redis_lock');
  await lockInTransaction(first, 'after');
  await first.query('ROLLBACK TO SAVEPOINT nest_redis_lock');
  await second.query('BEGIN');
  await lockInTransaction(second, 'after', { wait: 0 });
  await expect(lockInTransaction(second, 'before', { wait: 0 })).rejects.toBeInstanceOf(LockTimeoutError);
});

it('refuses a client without a transaction', async () => {
  const [first] = clients();
  const taken = lockInTransaction(first, 'order:3', { wait: 0 });
  await expect(taken).rejects.toThrow(/found no open transaction on the client.*run BEGIN on the same client/);
  await expect(taken).rejects.toBeInstanceOf(LockConfigError);
  await first.query('BEGIN; COMMIT');
  await expect(lockInTransaction(first, 'order:3')).rejects.toBeInstanceOf(LockConfigError);
});

it('refuses a Pool, and what is no client', async () => {
  // @ts-expect-error a Pool runs each statement on any of its connections
  const withPool = lockInTransaction(pool, 'order:4');
  await expect(withPool).rejects.toThrow(/got a Pool.*give the client of pool\.connect\(\) on which BEGIN has run/);
  await expect(withPool).rejects.toBeInstanceOf(LockConfigError);
  const withoutClient = lockInTransaction(undefined as unknown as pg.Client, 'order:4');
  await expect(withoutClient).rejects.toThrow(/Option "client" is undefined; give a Client of pg/);
});

it.each(['REPEATABLE READ', 'SERIALIZABLE'])('refuses a transaction at the level %s', async (level) => {
  const [first, second] = clients();
  await first.query(`BEGIN ISOLATION LEVEL ${level}`);
  const taken = lockInTransaction(first, 'order:5');
  await expect(taken).rejects.toThrow(
    `isolation level "${level.toLowerCase()}" reads data from before the lock was granted; begin it with BEGIN ISOLATION LEVEL READ COMMITTED`,
  );
  await expect(taken).rejects.toBeInstanceOf(LockConfigError);
  await second.query('BEGIN');
  await lockInTransaction(second, 'order:5', { wait: 0 });
});

it('runs "insert where there is none" once', async () => {
  const insert = 'INSERT INTO jobs SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM jobs)';
  const [first, second] = clients();
  await pool.query('CREATE TABLE jobs (id int)');
  for (const used of [first, second]) await used.query('BEGIN');
  await lockInTransaction(first, 'jobs');
  const waiting = lockInTransaction(second, 'jobs', { wait: '60s' });
  await someoneWaits();
  await first.query(insert);
  await first.query('COMMIT');
  await waiting;
  await second.query(insert);
  await second.query('COMMIT');
  expect((await pool.query('SELECT 1 FROM jobs')).rows).toHaveLength(1);
});
