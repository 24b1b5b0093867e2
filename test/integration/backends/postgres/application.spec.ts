import { jest } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type LockBackend, LockTimeoutError } from 'nest-redis-lock';
import { advisory, leaseTable, lockInTransaction, postgres } from 'nest-redis-lock/postgres';
import type { RenewAnswer } from 'nest-redis-lock/backend';
import pg from 'pg';
import { sequenceSql } from '../../../../lib/backends/postgres/advisory/advisory-sequence.js';
import { leaseTableSql } from '../../../../lib/backends/postgres/lease-table/lease-statements.js';
import { Child } from '../../../support/child.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { startLockApp } from '../../../support/lock-app.js';
import { replacing } from '../../../support/open-backend.js';
import { type PostgresServer, startPostgresServer } from '../../../support/servers/postgres-server.js';

const SQL = fileURLToPath(new URL('../../../../docs/postgres.sql', import.meta.url));

let server: PostgresServer;
let db: pg.Pool;
const pools: pg.Pool[] = [];

/** A pool of the application's, which ends after the test. */
function poolOf(options: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool(options);
  pool.on('error', () => {});
  pools.push(pool);
  return pool;
}

const proxies: FaultProxy[] = [];

async function startProxy(): Promise<FaultProxy> {
  const proxy = await FaultProxy.start(server.port);
  proxies.push(proxy);
  return proxy;
}

afterEach(async () => {
  for (const proxy of proxies.splice(0)) await proxy.stop();
  for (const pool of pools.splice(0)) if (!pool.ended) await pool.end();
});
beforeAll(async () => {
  server = await startPostgresServer();
  db = new pg.Pool({ connectionString: server.url, max: 2 });
  await db.query(readFileSync(SQL, 'utf8'));
});
afterAll(async () => {
  await db.end();
  await server.stop();
});

it('serves 1,000 cycles on 20 names with a pool of one connection, which the holders use too', async () => {
  const pool = new pg.Pool({ connectionString: server.url, max: 1 });
  const app = await startLockApp({ backend: leaseTable(pool) });
  const inside = new Map<string, number>();
  let cycles = 0;
  const caller = async () => {
    for (let round = 0; round < 50; round++) {
      const name = `pool:${Math.floor(Math.random() * 20)}`;
      await app.locks.withLock(name, { wait: 60_000 }, async () => {
        inside.set(name, (inside.get(name) ?? 0) + 1);
        expect(inside.get(name)).toBe(1);
        if (round % 5 === 0) await pool.query('SELECT 1');
        inside.set(name, 0);
        cycles += 1;
      });
    }
  };
  await Promise.all(Array.from({ length: 20 }, caller));
  expect(cycles).toBe(1_000);
  await app.close();
  expect(pool.ended).toBe(false);
  await pool.end();
});

it('takes and renews locks while a transaction holds the only connection of the pool', async () => {
  const pool = new pg.Pool({ connectionString: server.url, max: 1 });
  const app = await startLockApp({ backend: leaseTable(pool) });
  const client = await pool.connect();
  const lock = await app.locks.acquire('in-transaction', { ttl: 1_000 });
  await lock.extend(5_000);
  await lock.release();
  client.release();
  await app.close();
  await pool.end();
});

it('deletes the rows of names that nobody has used for a while, and issues higher tokens after it', async () => {
  const app = await startLockApp({ backend: leaseTable(server.url) });
  const before = await app.locks.withLock('swept', async (lock) => lock.fencingToken);
  const held = await app.locks.acquire('kept');
  await db.query(`UPDATE nest_redis_lock.locks SET expires_at = expires_at - interval '1 h' WHERE owner = ''`);
  await db.query(`SELECT nest_redis_lock.sweep_v1(interval '10 min', 20000)`);
  const { rows } = await db.query<{ count: string }>('SELECT count(*) FROM nest_redis_lock.locks');
  expect(Number(rows[0]?.count)).toBe(1);
  expect(await app.locks.withLock('swept', async (lock) => lock.fencingToken)).toBeGreaterThan(before);
  expect(held.held).toBe(true);
  await held.release();
  await app.close();
});

it('leaves no connection behind', async () => {
  const name = 'leaves-nothing';
  const options = { connectionString: server.url, application_name: name };
  const apps = [
    await startLockApp({ backend: leaseTable(options) }),
    await startLockApp({ backend: advisory(options) }),
  ];
  for (const { locks } of apps) await locks.withLock('x', async () => {});
  const left = async () => {
    const { rows } = await db.query('SELECT 1 FROM pg_stat_activity WHERE application_name = $1', [name]);
    return rows.length;
  };
  expect(await left()).toBeGreaterThan(0);
  await Promise.all(apps.map((app) => app.close()));
  await eventually(async () => (await left()) === 0);
});

it('takes the free ones of many names that are wanted at once, and none of the others', async () => {
  const [app, other] = [
    await startLockApp({ backend: leaseTable(server.url) }),
    await startLockApp({ backend: leaseTable(server.url) }),
  ];
  const names = Array.from({ length: 40 }, (_, index) => `many:${index}`);
  const taken = names.filter((_, index) => index % 4 === 0);
  const before = await Promise.all(taken.map((name) => other.locks.acquire(name)));
  const locks = await Promise.all(names.map((name) => app.locks.tryAcquire(name)));
  expect(names.filter((_, index) => locks[index] === null)).toEqual(taken);
  await Promise.all(before.map((lock) => lock.release()));
  const after = await Promise.all(taken.map((name) => app.locks.acquire(name)));
  for (const [index, lock] of after.entries()) {
    expect(lock.fencingToken).toBeGreaterThan(before[index]?.fencingToken ?? Infinity);
  }
  await Promise.all([...locks, ...after].map(async (lock) => lock?.release()));
  await app.close();
  await other.close();
});

it('goes on when the server ends its connections', async () => {
  const options = { connectionString: server.url, application_name: 'ended' };
  const app = await startLockApp({ backend: leaseTable(options) });
  for (let round = 0; round < 3; round++) {
    for (let cycle = 0; cycle < 5; cycle++) await app.locks.withLock('ended', { wait: 20_000 }, async () => {});
    await db.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1', ['ended']);
  }
  await app.locks.withLock('ended', { wait: 20_000 }, async () => {});
  await app.close();
});

it.each([
  ['connections of its own', (url: string) => leaseTable(url)],
  ['a pool of the application', (url: string) => leaseTable(poolOf({ connectionString: url }))],
])('asks for all locks at once when %s broke, as in a failover that lost them', async (_which, make) => {
  const proxy = await startProxy();
  const url = server.url.replace(/:\d+\//, `:${proxy.port}/`);
  const app = await startLockApp({ backend: make(url) });
  // The first looks are due after 5 s.
  const locks = await Promise.all(
    [{}, { renew: false }].map((options, index) => app.locks.acquire(`lost:${index}`, { ttl: '10m', ...options })),
  );
  const kept = await app.locks.acquire('kept', { ttl: '10m' });
  proxy.refuse();
  await db.query(
    "UPDATE nest_redis_lock.locks SET owner = 'other:1' WHERE owner IN ($1, $2)",
    locks.map(({ owner }) => owner),
  );
  proxy.accept();
  await eventually(() => locks.every(({ signal }) => signal.aborted), { within: 2_500 });
  expect(kept.held).toBe(true);
  await kept.release();
  await db.query("DELETE FROM nest_redis_lock.locks WHERE owner = 'other:1'");
  await app.close();
});

it.each([
  ['leaseTable', leaseTable],
  ['advisory', advisory],
] as const)(
  '%s(pool) gives its locks back once the application has ended the pool, and leaves nothing at it',
  async (_kind, make) => {
    const pool = poolOf({ connectionString: server.url });
    const ours = await startLockApp({ backend: make(pool) });
    const next = await startLockApp({ backend: make(server.url) });
    const [ending, ended] = [await ours.locks.acquire('pool ending'), await ours.locks.acquire('pool ended')];
    const client = await pool.connect();
    const end = pool.end();
    await ending.release();
    expect(await next.locks.isLocked('pool ending')).toBe(false);
    client.release();
    await end;
    await ended.release();
    const lock = await next.locks.acquire('pool ended', { wait: 0 });
    expect(await ours.locks.inspect('pool ended')).toMatchObject({ owner: lock.owner });
    await lock.release();
    await ours.close();
    await next.close();
    expect(pool.eventNames()).toEqual(['error']);
  },
);

it.concurrent.each([
  ['leaseTable', leaseTable],
  ['advisory', advisory],
] as const)('%s(pool) gives back connections on which no answer arrives', async (_kind, make) => {
  const proxy = await startProxy();
  const pool = poolOf({
    connectionString: server.url.replace(/:\d+\//, `:${proxy.port}/`),
    max: 3,
    idleTimeoutMillis: 0,
  });
  const app = await startLockApp({ backend: make(pool), commandTimeout: 500 });
  const together = async () => {
    const clients = await Promise.all(Array.from({ length: 3 }, () => pool.connect()));
    for (const client of clients) client.release();
  };
  await together();
  expect(pool.idleCount).toBe(3);
  proxy.silence();
  for (let call = 0; call < 3; call++)
    await expect(app.locks.inspect('unanswered')).rejects.toThrow('no answer within');
  await eventually(() => pool.waitingCount === 0 && pool.totalCount === pool.idleCount);
  await together();
  await app.close();
});

it('closes a connection whose statement takes too long, and goes on with others', async () => {
  const app = await startLockApp({
    backend: leaseTable({ connectionString: server.url, query_timeout: 500 }),
    commandTimeout: 20_000,
  });
  for (let cycle = 0; cycle < 5; cycle++) await app.locks.withLock('stuck', async () => {});
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query('SELECT 1 FROM nest_redis_lock.locks FOR UPDATE');
  await expect(app.locks.tryAcquire('stuck')).rejects.toThrow(/"stuck" failed/);
  await app.locks.withLock('not-stuck', { wait: 20_000 }, async () => {});
  await client.query('ROLLBACK');
  client.release();
  await app.locks.withLock('stuck', { wait: 20_000 }, async () => {});
  await app.close();
});

it('goes on refusing a server with serializable transactions, for as long as the process uses it', async () => {
  await db.query('CREATE DATABASE strict');
  await db.query("ALTER DATABASE strict SET default_transaction_isolation = 'serializable'");
  const url = server.url.replace(/postgres$/, 'strict');
  const app = await startLockApp({ backend: leaseTable(url) });
  const refused = /runs serializable transactions: set default_transaction_isolation to 'read committed'/;
  await eventually(() => app.logger.matching(refused).length === 1);
  await db.query('ALTER DATABASE strict RESET default_transaction_isolation');
  await db.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'strict'");
  await expect(app.locks.acquire('refused')).rejects.toThrow(refused);
  await app.close();
  const next = await startLockApp({ backend: leaseTable(url), failFast: true });
  await next.locks.withLock('served', async () => {});
  await next.close();
});

it.each(['serializable', 'repeatable read'])(
  'a pool with %s transactions: calls are refused once that is known, and nothing is rejected unhandled or stays taken',
  async (level) => {
    const options = `-c default_transaction_isolation=${level.replace(' ', '\\ ')}`;
    const pool = new pg.Pool({ connectionString: server.url, max: 2, options });
    const unhandled = jest.fn();
    process.on('unhandledRejection', unhandled);
    const name = `at ${level}`;
    try {
      const app = await startLockApp({ backend: leaseTable(pool) });
      // Some, or all, are granted before the check of the server has refused.
      const refused = /set default_transaction_isolation/;
      const calls = Array.from({ length: 5 }, () =>
        app.locks.withLock(name, { ttl: '1h', wait: '2s' }, async () => {}),
      );
      for (const call of await Promise.allSettled(calls))
        if (call.status === 'rejected') expect(call.reason).toMatchObject({ message: expect.stringMatching(refused) });
      await eventually(() => app.logger.matching(refused).length > 0);
      await expect(app.locks.acquire(name)).rejects.toThrow(refused);
      await using other = await startLockApp({ backend: leaseTable(server.url) });
      await eventually(async () => !(await other.locks.isLocked(name)));
      await app.close();
      expect(unhandled.mock.calls).toEqual([]);
    } finally {
      process.off('unhandledRejection', unhandled);
      await pool.end();
    }
  },
);

describe.each([
  ['raw text', { getTypeParser: () => (value: unknown) => value }],
  [
    'booleans as 1 and 0',
    {
      getTypeParser: (type: number) =>
        type === 16 ? (value: unknown) => (value === 't' ? 1 : 0) : (value: unknown) => value,
    },
  ],
  ['text as objects, and numbers as NaN', { getTypeParser: (type: number) => () => (type === 25 ? {} : NaN) }],
])('a pool whose parsers hand out %s', (_what, types) => {
  const open = () => new pg.Pool({ connectionString: server.url, max: 2, types });

  it.each([
    ['leaseTable', leaseTable],
    ['advisory', advisory],
  ])('serves %s()', async (_of, backend) => {
    const pool = open();
    const app = await startLockApp({ backend: backend(pool), failFast: true });
    await app.locks.withLock('parsed', async () => {});
    const several = await Promise.all(['parsed', 'parsed:2', 'parsed:3'].map((name) => app.locks.acquire(name)));
    for (const lock of several) {
      await lock.extend(20_000);
      expect(await app.locks.inspect(lock.keys[0] as string)).toMatchObject({ owner: lock.owner });
      await lock.release();
    }
    await app.close();
    await pool.end();
  });

  it('serves lockInTransaction()', async () => {
    const pool = open();
    const [first, second] = [await pool.connect(), await pool.connect()];
    for (const client of [first, second]) await client.query('BEGIN');
    await lockInTransaction(first, 'parsed');
    await expect(lockInTransaction(second, 'parsed', { wait: 0 })).rejects.toBeInstanceOf(LockTimeoutError);
    for (const client of [first, second]) client.release(true);
    await pool.end();
  });
});

it('refuses a pool whose clients do not tell of transactions, as those of pg.native', async () => {
  const pool = poolOf({ connectionString: server.url, max: 2 });
  const without = <Of extends object>(of: Of, name: string, value: unknown): Of =>
    new Proxy(of, {
      get: (target, key) => {
        if (key === name) return value;
        const own: unknown = Reflect.get(target, key);
        return typeof own === 'function' ? (own.bind(target) as unknown) : own;
      },
    });
  type Connected = Parameters<typeof pool.connect>[0];
  const native = without(pool, 'connect', (use: Connected) =>
    pool.connect((error, client, release) => use(error, client && without(client, 'connection', undefined), release)),
  );
  await using app = await startLockApp({ backend: leaseTable(native) });
  await expect(app.locks.acquire('native', { wait: Infinity })).rejects.toThrow(
    /as those of pg\.native.*: give a Pool of pg/,
  );
  await eventually(() => pool.idleCount === pool.totalCount);
});

it('refuses a connection whose transaction the application began just before it gave it back', async () => {
  const pool = poolOf({ connectionString: server.url, max: 1 });
  await using app = await startLockApp({ backend: leaseTable(pool) });
  await app.locks.withLock('begun', async () => {});
  const client = await pool.connect();
  const begun = Promise.all([client.query('SELECT 1'), client.query('BEGIN')]);
  client.release();
  await expect(app.locks.isLocked('begun')).rejects.toThrow('came back while its transaction was open');
  await begun;
  expect(await app.locks.isLocked('begun')).toBe(false);
});

describe('a user without rights', () => {
  beforeAll(async () => {
    await db.query('CREATE ROLE limited LOGIN');
  });
  const url = () => server.url.replace('postgres@', 'limited@');

  it('learns in one line how to create what is missing', async () => {
    const app = startLockApp({ backend: leaseTable(url(), { schema: 'not_there' }), failFast: true });
    await expect(app).rejects.toThrow(/PostgreSQL at 127\.0\.0\.1.*may not create it.*docs\/postgres\.sql/);
  });

  it('learns which rights it lacks', async () => {
    const app = startLockApp({ backend: leaseTable(url()), failFast: true });
    await expect(app).rejects.toThrow(/user "limited" lacks rights: GRANT USAGE ON SCHEMA nest_redis_lock/);
  });

  it('that loses its rights ends the wait of a lock', async () => {
    const app = await startLockApp({ backend: leaseTable(server.url) });
    await app.close();
    await db.query('CREATE ROLE left LOGIN');
    await db.query('GRANT USAGE ON SCHEMA nest_redis_lock TO left');
    await db.query('GRANT ALL ON ALL TABLES IN SCHEMA nest_redis_lock TO left');
    await db.query('GRANT ALL ON ALL SEQUENCES IN SCHEMA nest_redis_lock TO left');
    await using left = await startLockApp({ backend: leaseTable(server.url.replace('postgres@', 'left@')) });
    await left.locks.withLock('before', async () => {});
    await db.query('REVOKE ALL ON ALL TABLES IN SCHEMA nest_redis_lock FROM left');
    await expect(left.locks.acquire('after', { wait: Infinity })).rejects.toMatchObject({
      code: 'LOCK_BACKEND',
      message: expect.stringMatching(/permission denied.*grant the rights/),
    });
  });

  it.each<[string, () => LockBackend, RegExp]>([
    ['the rights of leaseTable()', () => leaseTable(url()), /lacks rights|permission denied/],
    ['the rights of advisory()', () => advisory(url()), /user "limited" lacks rights: GRANT USAGE/],
    ['the tables', () => leaseTable(server.url, { schema: 'absent', migrate: false }), /"migrate" is false; run/],
    ['the sequence', () => advisory(server.url, { schema: 'absent', migrate: false }), /"migrate" is false; run/],
  ])('ends the wait of a lock where %s are missing', async (_what, open, message) => {
    await using app = await startLockApp({ backend: open(), commandTimeout: 2_000 });
    await expect(app.locks.acquire('waited', { wait: Infinity })).rejects.toMatchObject({
      code: 'LOCK_BACKEND',
      message: expect.stringMatching(message),
    });
  });

  it('creates nothing where "migrate" is false', async () => {
    const app = startLockApp({
      backend: leaseTable(server.url, { schema: 'elsewhere', migrate: false }),
      failFast: true,
    });
    await expect(app).rejects.toThrow(/"migrate" is false; run docs\/postgres\.sql/);
  });
});

it('ships the SQL that it runs', () => {
  const expected = `BEGIN;\n${leaseTableSql('nest_redis_lock')}${sequenceSql('nest_redis_lock')}COMMIT;\n`;
  expect(readFileSync(SQL, 'utf8')).toBe(expected);
});

it('tells the holder of an advisory lock at once that its session was ended, before its lease is over', async () => {
  const told: unknown[] = [];
  const backend = replacing(
    advisory({ connectionString: server.url, application_name: 'killed' }),
    () => ({ renew: (requests) => requests.map(() => new Promise<RenewAnswer>(() => {})) }),
    (module) => ({
      ...module,
      lost: (...lost) => {
        told.push(...lost[0]);
        module.lost(...lost);
      },
    }),
  );
  const app = await startLockApp({ backend });
  const lock = await app.locks.acquire('session', { ttl: 30_000 });
  const { signal } = lock;
  const lost = new Promise((resolve) => signal.addEventListener('abort', resolve));
  await db.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed'`);
  await lost;
  expect(told).toEqual([lock.owner]);
  expect(lock.held).toBe(false);
  await app.locks.withLock('session', async (next) => expect(next.fencingToken).toBeGreaterThan(lock.fencingToken));
  await app.close();
});

it.concurrent('shares one wait among names that it takes one by one, and gives back those that it got', async () => {
  const [one, two] = await Promise.all([1, 2].map(() => startLockApp({ backend: advisory(server.url) })));
  const [first, second] = [await one!.locks.acquire('composite:1'), await one!.locks.acquire('composite:2')];
  // A wait for each name would take 5 s.
  const stop = new AbortController();
  const longer = two!.locks.acquire('composite:2', { wait: 4_900, signal: stop.signal }).catch(() => 'longer');
  const waiting = two!.locks.acquire(['composite:1', 'composite:2'], { wait: 3_000 }).catch((error: unknown) => error);
  setTimeout(() => void first.release(), 2_000);
  expect(await Promise.race([longer, waiting])).toBeInstanceOf(LockTimeoutError);
  stop.abort();
  await eventually(async () => !(await one!.locks.isLocked('composite:1')));
  await second.release();
  await Promise.all([one!.close(), two!.close()]);
});

it.each(['leaseTable', 'advisory'])(
  'keeps a process alive that only uses locks of %s, until it has closed',
  async (kind) => {
    const child = Child.start('locks-on-postgres.mjs', [server.url, kind]);
    expect(await child.exited).toBe(0);
    expect(await child.says('refused')).toBe('LOCK_TIMEOUT');
    await child.says('released');
    await child.says('closed');
  },
);

it.each([
  [() => leaseTable('secret'), /Option "connection" is "..."; give a Pool of pg/],
  [() => leaseTable({ connectionString: 'u:secret@h' }), /Option "connection.connectionString" is "..."; give a postg/],
  [() => leaseTable({ host: 'u:secret@h' }), /Option "connection.host" is "..."; give a host name/],
  [() => leaseTable('postgres://u:12/secret@h/db'), /Option "connection" is a URL with "@" behind its host/],
  [() => leaseTable({}, { schema: 'Bad Name' }), /Option "schema" is "Bad Name"; give a name/],
  [() => advisory({}, { sessions: 0 }), /Option "sessions" is 0; give a whole number/],
  [() => postgres({}, { kind: 'table' as 'leaseTable' }), /Option "kind" is "table"; give 'leaseTable' or 'advisory'/],
  [() => postgres({}, null as never), /Option "options" is null; give an object of options/],
  [() => leaseTable({ url: 'postgres://db' } as object), /Option "connection" has "url"; give "connectionString"/],
  [() => advisory({ uri: 'postgres://db' } as object), /Option "connection" has "uri"; give "connectionString"/],
  [() => advisory({ connection: {} } as object), /Option "connection" has "connection"; give "connectionString"/],
  [() => leaseTable({ hostname: 'db' } as object), /Unknown option "connection.hostname"; give any of connectionStr/],
  [() => advisory({ host: { name: 'db' } } as object), /Option "connection.host" is .*; give a host name/],
  [() => leaseTable({ host: 'postgres://shop:secret@db' }), /^(?!.*secret).*"connection.host".*give a host name/],
  [() => leaseTable({ port: 'five' } as object), /Option "connection.port" is "five"; give a number from 1 to 65535/],
  [
    () => leaseTable({ connectionString: new URL('postgres://db') } as object),
    /"connection.connectionString" is "object"; give a text/,
  ],
  [() => leaseTable(new URL('postgres://shop:secret@db') as object), /"connection" is an instance of URL; give plain/],
  [() => leaseTable(Promise.resolve({}) as object), /"connection" is an instance of Promise; give plain options/],
  [() => leaseTable({}, { messages: { prot: 1 } as object }), /Unknown option "messages.prot"/],
])('refuses bad options by name, case %#', (make, message) => {
  expect(make).toThrow(message);
});
