import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import pg from 'pg';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { startPgBouncer } from '../support/servers/pgbouncer.js';
import { type PostgresServer, startPostgresServer } from '../support/servers/postgres-server.js';
import { openBackend } from '../support/open-backend.js';

const [CALLERS, ROUNDS] = [20, 10];
const NO_MESSAGES = /messages of the locks do not arrive: is there a pooler in transaction mode\?/;
const REFUSED = /advisory locks are lost: give a direct connection or a pooler in session mode, or use leaseTable\(\)/;

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgresServer();
});
afterAll(() => server.stop());

/** Callers of two applications contend for one name; resolves to the fencing tokens in the order of the holds. */
async function contend(...apps: LockApp[]): Promise<number[]> {
  const tokens: number[] = [];
  let inside = 0;
  const caller = async (_: unknown, index: number) => {
    const { locks } = apps[index % apps.length] as LockApp;
    for (let round = 0; round < ROUNDS; round++) {
      await locks.withLock('pooled', { wait: 60_000 }, async ({ fencingToken }) => {
        expect((inside += 1)).toBe(1);
        tokens.push(fencingToken);
        await locks.withLock(`own:${index}`, async () => {});
        inside -= 1;
      });
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return tokens;
}

/** Each application waits for a lock of the other until `told`. */
async function contendUntil(told: () => boolean, one: LockApp, two: LockApp): Promise<void> {
  const holders = await Promise.all([one.locks.acquire('at one'), two.locks.acquire('at two')]);
  const waiting = { wait: 60_000 };
  const waiters = [one.locks.acquire('at two', waiting), two.locks.acquire('at one', waiting)];
  await eventually(told);
  for (const holder of holders) await holder.release();
  for (const waiter of waiters) await (await waiter).release();
}

describe('behind a pooler in transaction mode', () => {
  it.each([1, 3])(
    'a lease table excludes over %i connections of the server, and each process warns once',
    async (size) => {
      await using pooler = await startPgBouncer(server, 'transaction', size);
      const pool = new pg.Pool({ connectionString: pooler.url, max: 4 });
      await using one = await startLockApp({ backend: leaseTable(pooler.url) });
      await using two = await startLockApp({ backend: leaseTable(pool) });
      const tokens = await contend(one, two);
      expect(tokens).toHaveLength(CALLERS * ROUNDS);
      expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
      // Nest has one logger, that of the newest application.
      await contendUntil(() => two.logger.matching(NO_MESSAGES).length === 2, one, two);
      expect(two.logger.lines).toHaveLength(2);
      await two.close();
      await pool.end();
    },
  );

  it('a lease table with a direct connection for messages excludes without a warning', async () => {
    await using pooler = await startPgBouncer(server, 'transaction', 3);
    const backend = () => leaseTable(pooler.url, { messages: server.url });
    await using one = await startLockApp({ backend: backend() });
    await using two = await startLockApp({ backend: backend() });
    expect(await contend(one, two)).toHaveLength(CALLERS * ROUNDS);
    expect(two.logger.lines).toEqual([]);
  });

  it('advisory locks are refused, though it uses its connections of the server in turn', async () => {
    await using pooler = await startPgBouncer(server, 'transaction', 2, { server_round_robin: 1 });
    const pool = new pg.Pool({ connectionString: pooler.url, max: 2 });
    const clients = await Promise.all([pool.connect(), pool.connect()]);
    for (const client of clients) await client.query('BEGIN');
    for (const client of clients) await client.query('COMMIT');
    for (const client of clients) client.release();
    await pool.end();
    const backend = openBackend(advisory(pooler.url));
    await expect(backend.start?.()).rejects.toThrow(REFUSED);
    await backend.close?.();
  });

  it('grants no advisory lock twice, whatever session of the server a call is lent', async () => {
    const settings = { server_reset_query: 'DEALLOCATE ALL', server_reset_query_always: 1 };
    await using pooler = await startPgBouncer(server, 'transaction', 3, settings);
    // Below the layer that asks nothing after a refusal: each call looks for the pooler again.
    const backends = [1, 2].map(() => openBackend(advisory(pooler.url)));
    for (let round = 0; round < 40; round++) {
      const request = { name: `lent:${round}`, ttl: 60_000 };
      const taken = backends.map((backend, index) => backend.acquire({ ...request, ticket: `${index}:${round}` }));
      const answers = await Promise.allSettled(taken.map(async (each) => (await each).status));
      const granted = answers.filter((each) => each.status === 'fulfilled' && each.value === 'granted');
      expect(granted.length).toBeLessThan(2);
    }
    for (const backend of backends) await backend.close();
  });

  it.each([1, 3])('advisory locks are refused, with %i connections of the server', async (size) => {
    await using pooler = await startPgBouncer(server, 'transaction', size);
    await using app = await startLockApp({ backend: advisory(pooler.url) });
    const taken = () =>
      app.locks.acquire('refused').then(
        () => 'granted',
        ({ message }: Error) => message,
      );
    // A machine that is busy may take longer than the look for a pooler waits.
    await eventually(async () => {
      const answer = await taken();
      expect(answer).not.toBe('granted');
      return REFUSED.test(answer);
    });
  });
});

it.each([
  ['the mark', "SELECT set_config('nest_redis_lock.session', 'other', false)", ''],
  ['the locks', 'SELECT pg_advisory_lock(1)', 'RESET ALL'],
])('advisory() refuses a session that a pooler hands on with %s of another client', async (_what, left, reset) => {
  await using pooler = await startPgBouncer(server, 'session', 4, { server_reset_query: reset });
  const before = new pg.Pool({ connectionString: pooler.url, max: 4 });
  const clients = await Promise.all(Array.from({ length: 4 }, () => before.connect()));
  await clients[0]?.query('SELECT 1');
  for (const client of clients) await client.query(left.replace('(1)', `(${clients.indexOf(client)})`));
  for (const client of clients) client.release();
  await before.end();
  await using app = await startLockApp({ backend: advisory(pooler.url) });
  for (let tries = 0; tries < 3; tries++) await expect(app.locks.acquire('handed on')).rejects.toThrow(REFUSED);
});

it.each([
  ['advisory', advisory],
  ['leaseTable', leaseTable],
] as const)('%s() works behind a pooler in session mode', async (_name, make) => {
  await using pooler = await startPgBouncer(server, 'session', 10);
  await using one = await startLockApp({ backend: make(pooler.url) });
  await using two = await startLockApp({ backend: make(pooler.url) });
  expect(await contend(one, two)).toHaveLength(CALLERS * ROUNDS);
  expect(two.logger.lines).toEqual([]);
});
