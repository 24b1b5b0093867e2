import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { createPool, type Pool, type PoolOptions } from 'mysql2/promise';
import type { LockBackend, Notice } from 'nest-redis-lock/backend';
import { getLock, leaseTable, mysql } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startLockApp } from '../../support/lock-app.js';
import { type MariadbServer, startMariadbServer } from '../../support/servers/mariadb-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

describe('prepared statements', () => {
  let server: MariadbServer;
  let admin: Pool;
  beforeAll(async () => {
    server = await startMariadbServer();
    admin = createPool({ uri: server.url, connectionLimit: 2 });
  }, 60_000);
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const newTicket = () => `${randomUUID()}:1`;

  async function status(name: string): Promise<number> {
    const [rows] = await admin.query('SHOW GLOBAL STATUS LIKE ?', [name]);
    return Number((rows as { Value: string }[])[0]?.Value);
  }

  /** Takes a name, meets itself as another ticket, and releases it; answers the first token. */
  async function cycle(backend: OpenBackend, name: string = randomUUID(), ticket = newTicket()): Promise<number> {
    const taken = await backend.acquire({ name, ticket, ttl: 60_000 });
    if (taken.status !== 'granted') throw new Error(`"${name}" is ${taken.status}`);
    const other = await backend.acquire({ name, ticket: newTicket(), ttl: 60_000 });
    expect(other).toMatchObject({ status: 'busy', owner: ticket });
    expect(other.status === 'busy' && other.remaining).toBeGreaterThan(55_000);
    expect(await backend.release({ name, ticket })).toEqual({ status: 'released', resent: false });
    expect(await backend.release({ name, ticket })).toMatchObject({ status: 'gone' });
    return taken.tokens.first;
  }

  async function cyclesOfOneName(backend: OpenBackend, count = 3): Promise<void> {
    const name = randomUUID();
    let last = 0;
    for (let index = 0; index < count; index += 1) {
      const token = await cycle(backend, name);
      expect(Number.isSafeInteger(token) && token > last).toBe(true);
      last = token;
    }
  }

  const COMMAND = 4;
  const PREPARE = 0x16;
  const EXECUTE = 0x17;
  const NO_COMMAND = 0x50;

  /** A proxy that spoils the commands of prepared statements. */
  async function spoilingProxy(spoil: (packet: Buffer) => boolean) {
    let spoiled = 0;
    const proxy = createServer((client) => {
      const upstream = connect(server.port, '127.0.0.1');
      for (const socket of [client, upstream]) socket.on('error', () => {});
      client.on('data', (packet: Buffer) => {
        if (spoil(packet)) spoiled += 1;
        upstream.write(packet);
      });
      client.on('close', () => upstream.destroy());
      upstream.pipe(client);
    });
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const { port } = proxy.address() as AddressInfo;
    return { url: `mysql://root@127.0.0.1:${port}/test`, spoiled: () => spoiled, stop: () => proxy.close() };
  }

  it('the server prepares two statements for each connection, however many names and leases there are', async () => {
    const backend = openBackend(leaseTable({ uri: server.url, connectionLimit: 1 }));
    await backend.start?.();
    const [prepared, executed] = [await status('Com_stmt_prepare'), await status('Com_stmt_execute')];
    for (let index = 0; index < 30; index += 1) {
      const ticket = newTicket();
      await backend.acquire({ name: `n${index}`, ticket, ttl: 10_000 + index });
      await backend.release({ name: `n${index}`, ticket });
    }
    expect((await status('Com_stmt_prepare')) - prepared).toBe(0);
    expect((await status('Com_stmt_execute')) - executed).toBe(60);
    expect(await status('Prepared_stmt_count')).toBe(2);
    await backend.close();
    await eventually(async () => (await status('Prepared_stmt_count')) === 0);
  });

  it('statements on a pool of the application stay text', async () => {
    const pool = createPool({ uri: server.url, connectionLimit: 1 });
    const prepared = await status('Com_stmt_prepare');
    await cyclesOfOneName(openBackend(leaseTable(pool)));
    expect(await status('Com_stmt_prepare')).toBe(prepared);
    await pool.end();
  });

  it('locks are taken as before where the server has no room for a prepared statement', async () => {
    const [[before]] = (await admin.query('SELECT @@max_prepared_stmt_count AS most')) as unknown as [
      [{ most: number }],
    ];
    await admin.query('SET GLOBAL max_prepared_stmt_count = 0');
    try {
      const backend = openBackend(leaseTable(server.url));
      await cyclesOfOneName(backend);
      await backend.close();
    } finally {
      await admin.query(`SET GLOBAL max_prepared_stmt_count = ${before.most}`);
    }
  });

  describe('behind a proxy that', () => {
    it.each([
      [
        'knows no prepared statements',
        (packet: Buffer) => {
          const prepares = packet[COMMAND] === PREPARE;
          if (prepares) packet[COMMAND] = NO_COMMAND;
          return prepares;
        },
      ],
      [
        'runs a statement on a session that did not prepare it',
        (packet: Buffer) => {
          const executes = packet[COMMAND] === EXECUTE;
          if (executes) packet.writeUInt32LE(9_999, COMMAND + 1);
          return executes;
        },
      ],
    ])('%s, statements go as text after the first refusal', async (_what, spoil) => {
      const proxy = await spoilingProxy(spoil);
      const backend = openBackend(leaseTable({ uri: proxy.url, connectionLimit: 1 }));
      await cyclesOfOneName(backend, 10);
      expect(proxy.spoiled()).toBe(1);
      // The statement that the server did not know by its number is not kept.
      expect(await status('Prepared_stmt_count')).toBe(0);
      await backend.close();
      proxy.stop();
    });
  });

  it('a connection that the server has ended is followed by one that prepares anew', async () => {
    const backend = openBackend(leaseTable({ uri: server.url, connectionLimit: 1 }));
    const name = randomUUID();
    const first = await cycle(backend, name);
    await admin.query('FLUSH TABLES');
    const second = await cycle(backend, name);
    const prepared = await status('Com_stmt_prepare');
    const [users] = await admin.query(
      "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND id <> CONNECTION_ID()",
    );
    for (const { id } of users as { id: number }[]) await admin.query(`KILL ${id}`).catch(() => {});
    const third = await eventually(() => cycle(backend, name).catch(() => undefined));
    expect((await status('Com_stmt_prepare')) - prepared).toBe(2);
    expect([first, second, third]).toEqual([first, second, third].toSorted((a, b) => a - b));
    await backend.close();
  });

  it('the table may be dropped and made again while its statements are prepared', async () => {
    const backend = openBackend(leaseTable({ uri: server.url, connectionLimit: 1 }, { table: 'dropped_locks' }));
    await cyclesOfOneName(backend);
    await admin.query('DROP TABLE dropped_locks');
    await cyclesOfOneName(backend);
    await backend.close();
  });

  describe('prepared statements mean the same on connections that', () => {
    it.each<[string, PoolOptions]>([
      ['count changed rows instead of found ones', { flags: ['-FOUND_ROWS'] }],
      ['return big numbers as text', { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true }],
      ['return rows as arrays', { rowsAsArray: true }],
      ['cast nothing', { typeCast: false }],
      ['name placeholders', { namedPlaceholders: true }],
      ['speak latin1', { charset: 'LATIN1_SWEDISH_CI' }],
      ['return decimals as numbers', { decimalNumbers: true }],
    ])('%s', async (_what, options) => {
      const backend = openBackend(leaseTable({ uri: server.url, connectionLimit: 1, ...options }));
      await cyclesOfOneName(backend);
      await backend.close();
    });
  });

  it('names and tickets of any characters are kept as they are', async () => {
    const backend = openBackend(
      leaseTable({ uri: server.url, charset: 'LATIN1_SWEDISH_CI' }, { table: 'shown_locks' }),
    );
    const names = [`Lagerplätze 📦 ${'ж'.repeat(300)}`, `it's "?" \\ :id`, ''];
    for (const name of names) {
      await cycle(backend, name);
      await cycle(backend, name, `prozeß 'ü' ${randomUUID()}:1`);
    }
    const [rows] = await admin.query('SELECT name FROM shown_locks');
    const shown = (rows as { name: string }[]).map((row) => row.name);
    expect(shown.toSorted()).toEqual(names.map((name) => name.slice(0, 255)).toSorted());
    await backend.close();
  });
});

describe('modes of the server', () => {
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
  const take = (backend: OpenBackend, name: string, ticket = newTicket(), ttl = 10_000) =>
    backend.acquire({ name, ticket, ttl });

  /** A name is taken by one ticket at a time, also after a lease has ended, and tokens rise. */
  async function excludes(backend: OpenBackend): Promise<void> {
    const name = randomUUID();
    const short = await take(backend, name, newTicket(), 50);
    let next = await take(backend, name);
    await eventually(async () => {
      if (next.status === 'busy') next = await take(backend, name);
      return next.status === 'granted';
    });
    expect(await take(backend, name)).toMatchObject({ status: 'busy' });
    expect(short.status === 'granted' && next.status === 'granted' && next.tokens.first > short.tokens.first).toBe(
      true,
    );
  }

  describe('a pool of the application', () => {
    it.each([
      ['counts changed rows instead of found ones', { flags: ['-FOUND_ROWS'] }],
      ['returns big numbers as text', { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true }],
      ['returns rows as arrays', { rowsAsArray: true }],
      ['casts nothing', { typeCast: false }],
    ])('may be one that %s', async (_what, options) => {
      const pool = createPool({ uri: server.url, ...options });
      await excludes(openBackend(leaseTable(pool)));
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
      await excludes(openBackend(leaseTable(pool)));
      await pool.end();
    });

    it('must not have a connection inside a transaction, with whose rollback a lock would end', async () => {
      const pool = createPool({ uri: server.url, connectionLimit: 1 });
      const backend = openBackend(leaseTable(pool));
      const name = randomUUID();
      await pool.query('BEGIN');
      await expect(take(backend, name)).rejects.toThrow('inside a transaction');
      expect((await take(backend, name)).status).toBe('granted');
      await pool.end();
    });

    it.each(['BEGIN', 'SET autocommit = 0'])(
      'must not have a connection inside a transaction after %s, whose reads may be old',
      async (begin) => {
        const pool = createPool({ uri: server.url, connectionLimit: 1 });
        const other = openBackend(leaseTable(server.url));
        const backends = [openBackend(leaseTable(pool)), openBackend(getLock(pool))];
        const [leases, named] = backends as [OpenBackend, OpenBackend];
        const request = { name: randomUUID(), ticket: newTicket(), ttl: 60_000 };
        await named.acquire(request);
        for (const read of [
          () => leases.inspect(request),
          () => leases.forceRelease?.(request),
          () => named.inspect(request),
        ]) {
          await pool.query(begin);
          // From here on, plain reads of the connection see the tables as they are now.
          await pool.query('SELECT COUNT(*) FROM nest_redis_lock, nest_redis_lock_tokens');
          await other.acquire(request);
          await expect(read()).rejects.toThrow('inside a transaction');
          expect(await read()).not.toBeNull();
          await other.release(request);
        }
        await Promise.all([...backends, other].map((backend) => backend.close()));
        await pool.end();
      },
    );
  });

  describe('a transaction of somebody else', () => {
    it('that locks the row for a moment delays the answer', async () => {
      const backend = openBackend(leaseTable(server.url));
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
      const backend = openBackend(leaseTable(server.url, { table: 'test.swept', keepRows: 1_000 }));
      const name = randomUUID();
      const ticket = newTicket();
      const before = await take(backend, name, ticket);
      await backend.release({ name, ticket });
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

  it('rights that the user loses end the wait of a lock', async () => {
    const user = `u${randomUUID().slice(0, 8)}`;
    await admin.query(`CREATE USER ${user}@'%'`);
    await admin.query(`GRANT ALL ON test.lost TO ${user}@'%'`);
    await using app = await startLockApp({ backend: leaseTable(server.url.replace('root', user), { table: 'lost' }) });
    await app.locks.withLock('before', async () => {});
    await admin.query(`REVOKE INSERT, UPDATE ON test.lost FROM ${user}@'%'`);
    await expect(app.locks.acquire('after', { wait: Infinity })).rejects.toMatchObject({
      code: 'LOCK_BACKEND',
      message: expect.stringMatching(/command denied to user/),
    });
  });

  it.each([
    ['leaseTable', leaseTable, 'absent', /doesn't exist.*; create the table/],
    ['getLock', getLock, 'absent', /doesn't exist.*; create the table/],
    ['leaseTable', leaseTable, 'other_columns', /Unknown column.*; the table has other columns/],
    ['getLock', getLock, 'other_columns', /Unknown column.*; the table has other columns/],
  ])('%s ends the wait of a lock whose table fits not (%#)', async (_kind, make, table, message) => {
    await admin.query('CREATE TABLE IF NOT EXISTS other_columns (id BINARY(32) NOT NULL PRIMARY KEY)');
    await using app = await startLockApp({
      backend: make(server.url, { table, createTable: false }),
      commandTimeout: 2_000,
    });
    await expect(app.locks.acquire('waited', { wait: Infinity })).rejects.toMatchObject({
      code: 'LOCK_BACKEND',
      message: expect.stringMatching(message),
    });
  });

  it('reports once that unused rows cannot be deleted', async () => {
    const user = `u${randomUUID().slice(0, 8)}`;
    await admin.query(`CREATE USER ${user}@'%'`);
    await admin.query(`GRANT ALL ON test.kept TO ${user}@'%'`);
    const notices: Notice[] = [];
    const backend = openBackend(leaseTable(server.url.replace('root', user), { table: 'kept', keepRows: 1_000 }), {
      report: (notice) => void notices.push(notice),
    });
    await backend.start?.();
    await admin.query(`REVOKE DELETE ON test.kept FROM ${user}@'%'`);
    await take(backend, randomUUID(), newTicket(), 1);
    const deletions = async () => {
      const [[status]] = (await admin.query("SHOW GLOBAL STATUS LIKE 'Com_delete'")) as unknown as [
        [{ Value: string }],
      ];
      return Number(status.Value);
    };
    await eventually(() => notices.length > 0);
    const before = await deletions();
    await eventually(async () => (await deletions()) > before + 1);
    expect(notices).toEqual([
      { level: 'warn', message: expect.stringMatching(/DELETE command denied.*rows of unused/) },
    ]);
    await backend.close();
  });

  describe('names what is missing in one line', () => {
    const start = async (backend: LockBackend): Promise<void> => {
      try {
        await openBackend(backend).start?.();
      } catch (error) {
        throw backend.diagnose?.(error) ?? error;
      } finally {
        await backend.close();
      }
    };

    it.each([
      [
        'the permission to create the table',
        'SELECT, INSERT',
        {},
        /command denied.*; grant what docs\/guide\/mysql.md/,
      ],
      ['the permission to change rows', 'SELECT, CREATE', {}, /command denied.*; grant what docs\/guide\/mysql.md/],
      [
        'the permission to delete rows',
        'SELECT, INSERT, UPDATE, CREATE',
        {},
        /DELETE command denied.*; grant what docs/,
      ],
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
      await expect(start(leaseTable('mysql://root@127.0.0.1:1/test'))).rejects.toThrow(
        /ECONNREFUSED.*; nothing listens/,
      );
      await expect(start(getLock(server.url.replace('/test', '/none')))).rejects.toThrow(
        /; the database does not exist/,
      );
      await expect(start(getLock(server.url.replace('/test', '')))).rejects.toThrow(/; give a database in the URL/);
      await expect(start(leaseTable(server.url.replace('root@', 'root:wrong@')))).rejects.toThrow(/; correct user and/);
    });
  });

  it.each([
    ['The connection of a MySQL lock backend is undefined; give a URL', () => leaseTable(undefined as never)],
    ['The connection of a MySQL lock backend is text that is not a URL', () => leaseTable('localhost and a-secret')],
    ['is "redis://..."; give', () => leaseTable('redis://:a-secret@localhost')],
    ['URI malformed; correct it', () => leaseTable('mysql://root:a-secret%zz@db')],
    ['Unknown charset', () => leaseTable({ password: 'a-secret', charset: 'none' })],
    ['Unknown SSL profile', () => getLock({ password: 'a-secret', ssl: 'none' })],
    ['is a list; give', () => leaseTable(['mysql://root:a-secret@localhost'] as never)],
    [
      'is options with "url", which mysql2 calls "uri"; give',
      () => leaseTable({ url: 'mysql://root:a-secret@db' } as never),
    ],
    ['is a client that is no pool; give', () => leaseTable({ query: () => {} } as never)],
    ['Unknown option "connection.hostname"; give any of uri, host', () => leaseTable({ hostname: 'db' } as never)],
    ['Option "connection.host" is "mysql://..."; give a host', () => getLock({ host: 'mysql://shop:a-secret@db' })],
    ['Option "connection.host" is "..."; give a host', () => getLock({ host: 'shop:a-secret@db' })],
    ['is a URL without a host; give', () => leaseTable('mysql:/root:a-secret@db/shop')],
    ['is a URL without a host; give', () => leaseTable({ uri: 'mysql:/root:a-secret@db/shop' })],
    ['"connection.uri" is a URL with "@" behind', () => leaseTable({ uri: 'mysql://root:12/a-secret@db/shop' })],
    ['"connection" is a URL with "@" behind its host', () => leaseTable('mysql://root:12/a-secret@db/shop')],
    ['Option "connection.port" is "five"; give a number', () => leaseTable({ port: 'five' } as never)],
    ['Option "connection.uri" is "object"; give a text', () => getLock({ uri: new URL('mysql://db') } as never)],
    ['"connection" is an instance of URL; give plain', () => leaseTable(new URL('mysql://a-secret@db') as never)],
    ['Option "table" is "a b"; give a name of letters', () => leaseTable('mysql://h', { table: 'a b' })],
    ['Option "keepRows" is 1; give milliseconds (1000 or more)', () => leaseTable('mysql://h', { keepRows: 1 })],
    ['Unknown option of leaseTable() "sessions"', () => leaseTable('mysql://h', { sessions: 1 } as never)],
    ['Option "sessions" is 0; give a whole number from 1 on', () => getLock('mysql://h', { sessions: 0 })],
    [`Option "kind" is "rows"; give 'leaseTable' or 'getLock'`, () => mysql('mysql://h', { kind: 'rows' } as never)],
  ])('%s', (message, make) => {
    expect(make).toThrow(message);
  });
});
