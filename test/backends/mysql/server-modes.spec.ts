import { randomUUID } from 'node:crypto';
import { createPool, type Pool } from 'mysql2/promise';
import type { LockBackend, Notice } from 'nest-redis-lock';
import { getLock, leaseTable, mysql } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let admin: Pool;
beforeAll(async () => {
  server = await startMariadbServer();
  admin = createPool({ uri: server.url, connectionLimit: 5 });
}, 60_000);
afterAll(async () => {
  await admin.end();
  await server.stop();
});

const newTicket = () => `${randomUUID()}:1`;
const take = (backend: LockBackend, name: string, ticket = newTicket(), ttl = 10_000) =>
  backend.acquire({ names: [name], ticket, ttl });

/** A name is taken by one ticket at a time, also after a lease has ended, and tokens rise. */
async function excludes(backend: LockBackend): Promise<void> {
  const name = randomUUID();
  const short = await take(backend, name, newTicket(), 50);
  let next = await take(backend, name);
  await eventually(async () => {
    if (next.status === 'busy') next = await take(backend, name);
    return next.status === 'granted';
  });
  expect(await take(backend, name)).toMatchObject({ status: 'busy' });
  expect(short.status === 'granted' && next.status === 'granted' && next.tokens.first > short.tokens.first).toBe(true);
}

describe('a pool of the application', () => {
  it.each([
    ['counts changed rows instead of found ones', { flags: ['-FOUND_ROWS'] }],
    ['returns big numbers as text', { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true }],
    ['returns rows as arrays', { rowsAsArray: true }],
    ['casts nothing', { typeCast: false }],
  ])('may be one that %s', async (_what, options) => {
    const pool = createPool({ uri: server.url, ...options });
    await excludes(leaseTable(pool));
    await pool.end();
  });

  it.each([
    "sql_mode = 'SIMULTANEOUS_ASSIGNMENT'",
    "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,PIPES_AS_CONCAT'",
    "sql_mode = ''",
    "time_zone = '-11:30'",
    "tx_isolation = 'SERIALIZABLE'",
    "tx_isolation = 'READ-COMMITTED'",
    'NAMES latin1',
  ])('may have sessions with SET %s', async (setting) => {
    const pool = createPool({ uri: server.url, connectionLimit: 1 });
    await pool.query(`SET ${setting}`);
    await excludes(leaseTable(pool));
    await pool.end();
  });

  it('must not have a connection inside a transaction, with whose rollback a lock would end', async () => {
    const pool = createPool({ uri: server.url, connectionLimit: 1 });
    const backend = leaseTable(pool);
    const name = randomUUID();
    await pool.query('BEGIN');
    await expect(take(backend, name)).rejects.toThrow('inside a transaction');
    expect((await take(backend, name)).status).toBe('granted');
    await pool.end();
  });
});

describe('a transaction of somebody else', () => {
  it('that locks the row for a moment delays the answer', async () => {
    const backend = leaseTable(server.url);
    const [one, two] = [randomUUID(), randomUUID()];
    await Promise.all([take(backend, one), take(backend, two)]);
    const foreign = await admin.getConnection();
    await foreign.query('BEGIN');
    await foreign.query('SELECT * FROM nest_redis_lock FOR UPDATE');
    const waiting = take(backend, one);
    await foreign.query('ROLLBACK');
    expect(await waiting).toMatchObject({ status: 'busy' });
    foreign.release();
    await backend.close();
  });
});

describe('rows', () => {
  it('that nobody has used for a while are deleted, and their tokens do not come again', async () => {
    const backend = leaseTable(server.url, { table: 'test.swept', keepRows: 1_000 });
    const name = randomUUID();
    const ticket = newTicket();
    const before = await take(backend, name, ticket);
    await backend.release({ names: [name], ticket });
    const held = randomUUID();
    await take(backend, held, newTicket(), 600_000);
    await eventually(async () => {
      const [rows] = await admin.query('SELECT name FROM swept');
      return (rows as { name: string }[]).length === 1;
    });
    expect(await backend.inspect({ name: held })).not.toBeNull();
    const after = await take(backend, name);
    expect(after.status === 'granted' && before.status === 'granted' && after.tokens.first).toBeGreaterThan(
      before.status === 'granted' ? before.tokens.first + before.tokens.count - 1 : Infinity,
    );
    await backend.close();
  });
});

it('reports once that unused rows cannot be deleted', async () => {
  const user = `u${randomUUID().slice(0, 8)}`;
  await admin.query(`CREATE USER ${user}@'%'`);
  await admin.query(`GRANT ALL ON test.kept TO ${user}@'%'`);
  const backend = leaseTable(server.url.replace('root', user), { table: 'kept', keepRows: 1_000 });
  const notices: Notice[] = [];
  await backend.start?.({ commandTimeout: 10_000, report: (notice) => void notices.push(notice) });
  await admin.query(`REVOKE DELETE ON test.kept FROM ${user}@'%'`);
  await take(backend, randomUUID(), newTicket(), 1);
  const deletions = async () => {
    const [[status]] = (await admin.query("SHOW GLOBAL STATUS LIKE 'Com_delete'")) as unknown as [[{ Value: string }]];
    return Number(status.Value);
  };
  await eventually(() => notices.length > 0);
  const before = await deletions();
  await eventually(async () => (await deletions()) > before + 1);
  expect(notices).toEqual([{ level: 'warn', message: expect.stringMatching(/DELETE command denied.*rows of unused/) }]);
  await backend.close();
});

describe('names what is missing in one line', () => {
  const start = async (backend: LockBackend): Promise<void> => {
    try {
      await backend.start?.({ commandTimeout: 1_000, report: () => {} });
    } finally {
      await backend.close();
    }
  };

  it.each([
    ['the permission to create the table', 'SELECT, INSERT', {}, /command denied.*; grant what docs\/guide\/mysql.md/],
    ['the permission to change rows', 'SELECT, CREATE', {}, /command denied.*; grant what docs\/guide\/mysql.md/],
    ['the permission to delete rows', 'SELECT, INSERT, UPDATE, CREATE', {}, /DELETE command denied.*; grant what docs/],
    ['the table', 'ALL', { createTable: false }, /doesn't exist.*; create the table with the SQL/],
  ])('%s', async (_what, rights, options, message) => {
    const user = `u${randomUUID().slice(0, 8)}`;
    await admin.query(`CREATE USER ${user} IDENTIFIED BY 'a-secret'`);
    await admin.query(`GRANT ${rights} ON test.* TO ${user}`);
    const url = `mysql://${user}:a-secret@127.0.0.1:${server.port}/test`;
    const error = await start(leaseTable(url, { table: `t${user}`, ...options })).catch((reason: Error) => reason);
    expect(error).toBeInstanceOf(Error);
    expect((error as Error).message).toMatch(message);
    expect((error as Error).message).toMatch(`MySQL server 127.0.0.1:${server.port}, database "test": `);
    expect((error as Error).message).not.toMatch(/a-secret|\n/);
  });

  it('the server, the database or the password', async () => {
    await expect(start(leaseTable('mysql://root@127.0.0.1:1/test'))).rejects.toThrow(/ECONNREFUSED.*; nothing listens/);
    await expect(start(getLock(server.url.replace('/test', '/none')))).rejects.toThrow(/; the database does not exist/);
    await expect(start(getLock(server.url.replace('/test', '')))).rejects.toThrow(/; give a database in the URL/);
    await expect(start(leaseTable(server.url.replace('root@', 'root:wrong@')))).rejects.toThrow(/; correct user and/);
  });
});

it.each([
  ['The connection of a MySQL lock backend is undefined; give a URL', () => leaseTable(undefined as never)],
  ['The connection of a MySQL lock backend is text that is not a URL', () => leaseTable('localhost and a-secret')],
  ['is a redis:// URL; give', () => leaseTable('redis://:a-secret@localhost')],
  ['is a list; give', () => leaseTable(['mysql://root:a-secret@localhost'] as never)],
  [
    'is options with "url", which mysql2 calls "uri"; give',
    () => leaseTable({ url: 'mysql://root:a-secret@db' } as never),
  ],
  ['is a client that is no pool; give', () => leaseTable({ query: () => {} } as never)],
  ['Option "table" is "a b"; give a name of letters', () => leaseTable('mysql://h', { table: 'a b' })],
  ['Option "keepRows" is 1; give milliseconds (1000 or more)', () => leaseTable('mysql://h', { keepRows: 1 })],
  ['Unknown option of leaseTable() "sessions"', () => leaseTable('mysql://h', { sessions: 1 } as never)],
  ['Option "sessions" is 0; give a whole number from 1 on', () => getLock('mysql://h', { sessions: 0 })],
  [`Option "kind" is "rows"; give 'leaseTable' or 'getLock'`, () => mysql('mysql://h', { kind: 'rows' } as never)],
])('%s', (message, make) => {
  expect(make).toThrow(message);
});
