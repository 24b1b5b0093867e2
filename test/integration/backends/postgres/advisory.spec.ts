import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { LockConfigError, LockTimeoutError } from 'nest-redis-lock';
import { advisory, type AdvisoryOptions, lockInTransaction } from 'nest-redis-lock/postgres';
import pg from 'pg';
import { advisoryStatements } from '../../../../lib/backends/postgres/advisory/advisory-sequence.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { startLockApp } from '../../../support/lock-app.js';
import { type PostgresServer, startPostgresServer } from '../../../support/servers/postgres-server.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

describe('a session', () => {
  const file = (path: string) => readFileSync(fileURLToPath(new URL(`../../../../${path}`, import.meta.url)), 'utf8');
  const statements = advisoryStatements('nest_redis_lock');

  let server: PostgresServer;
  let db: pg.Client;
  const opened: OpenBackend[] = [];
  const lost: string[] = [];

  beforeAll(async () => {
    server = await startPostgresServer();
    db = new pg.Client(server.url);
    await db.connect();
  });
  beforeEach(() => lost.splice(0));
  afterEach(async () => {
    await db.query('ROLLBACK');
    for (const backend of opened.splice(0)) await backend.close?.();
  });
  afterAll(async () => {
    await db.end();
    await server.stop();
  });

  async function open(name: string, { url = server.url, ...options }: { url?: string } & AdvisoryOptions = {}) {
    const inner = advisory({ connectionString: url, application_name: name }, { sessions: 1, ...options });
    const backend = openBackend(inner, { lost: (tickets) => lost.push(...tickets) });
    opened.push(backend);
    await backend.start?.();
    return backend;
  }

  const take = async (backend: OpenBackend, name: string, ticket: string) =>
    (await backend.acquire({ name, ticket, ttl: 60_000 })).status;
  const free = async (backend: OpenBackend, name: string, ticket: string) =>
    (await backend.release({ name, ticket })).status;

  /** A database of its own. */
  async function database(name: string, setting?: string): Promise<string> {
    await db.query(`CREATE DATABASE ${name}`);
    if (setting !== undefined) await db.query(`ALTER DATABASE ${name} SET ${setting}`);
    return server.url.replace(/postgres$/, name);
  }

  async function connectionsOf(name: string): Promise<number> {
    return (await db.query('SELECT 1 FROM pg_stat_activity WHERE application_name = $1', [name])).rows.length;
  }

  it.each([
    ['no message arrives', withoutMessages],
    ['messages for another client arrive', withOtherMessages],
  ])('is not used where %s, as behind a pooler that the look for one has missed', async (_what, alter) => {
    const pooler = await FaultProxy.start(server.port);
    pooler.alterReplies(alter);
    const backend = await open('unheard', { url: server.url.replace(`:${server.port}`, `:${pooler.port}`) });
    const remedy =
      /did not arrive within 3000 ms.*give a direct connection or a pooler in session mode, or use leaseTable/;
    await expect(take(backend, 'unheard', 'a:1')).rejects.toThrow(remedy);
    pooler.alterReplies((reply) => reply);
    expect(await take(backend, 'unheard', 'b:1')).toBe('granted');
    await backend.close();
    await pooler.stop();
  });

  it.each(['repeatable read', 'serializable'])('writes at "read committed" where the default is %s', async (level) => {
    const url = await database(level.replace(' ', '_'), `default_transaction_isolation = '${level}'`);
    const backend = await open('isolated', { url });
    const root = new pg.Client(url);
    await root.connect();
    await root.query(`
ALTER TABLE nest_redis_lock.holders ADD COLUMN written_at text DEFAULT current_setting('transaction_isolation')`);
    expect(await take(backend, 'isolated', 'p:1')).toBe('granted');
    const { rows } = await root.query('SELECT written_at FROM nest_redis_lock.holders');
    expect(rows).toEqual([{ written_at: 'read committed' }]);
    await root.end();
  });

  it('keeps its other locks when a statement fails, and frees the one that the statement took', async () => {
    const [one, two] = [await open('one'), await open('two')];
    expect(await take(one, 'kept', 'p:1')).toBe('granted');
    await db.query(`ALTER TABLE nest_redis_lock.holders ADD CONSTRAINT refused CHECK (ticket <> 'p:2')`);
    await expect(take(one, 'failing', 'p:2')).rejects.toThrow('violates check constraint');
    expect(await take(two, 'failing', 'q:1')).toBe('granted');
    expect(await take(two, 'kept', 'q:2')).toBe('busy');
    expect(lost).toEqual([]);
    expect(await free(one, 'kept', 'p:1')).toBe('released');
    expect(await take(two, 'kept', 'q:2')).toBe('granted');
  });

  it('keeps its other locks while their table is locked', async () => {
    const one = await open('one');
    expect(await take(one, 'kept', 'p:1')).toBe('granted');
    await db.query('BEGIN; LOCK TABLE nest_redis_lock.holders IN SHARE MODE');
    await expect(take(one, 'blocked', 'p:2')).rejects.toThrow('canceling statement due to lock timeout');
    await db.query('ROLLBACK');
    expect(lost).toEqual([]);
    expect(await take(one, 'blocked', 'p:3')).toBe('granted');
    expect(await free(one, 'kept', 'p:1')).toBe('released');
  });

  it('frees a lock although its row cannot be deleted', async () => {
    const [one, two] = [await open('one'), await open('two')];
    expect(await take(one, 'stuck', 'p:1')).toBe('granted');
    await db.query(`
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON nest_redis_lock.holders FOR EACH ROW EXECUTE FUNCTION refuse()`);
    expect(await free(one, 'stuck', 'p:1')).toBe('released');
    await db.query('DROP TRIGGER refuse ON nest_redis_lock.holders');
    expect(await take(two, 'stuck', 'q:1')).toBe('granted');
  });

  it('leaves no connection of a session that it could not open', async () => {
    const url = await database('read_only');
    const backend = await open('leaks', { url });
    expect(await take(backend, 'first', 'p:0')).toBe('granted');
    await db.query('ALTER DATABASE read_only SET default_transaction_read_only = on');
    await db.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leaks'`);
    await eventually(() => lost.length === 1);
    for (let round = 1; round <= 5; round++) {
      await expect(take(backend, 'x', `p:${round}`)).rejects.toThrow('read-only transaction');
    }
    await eventually(async () => (await connectionsOf('leaks')) <= 1);
    await expect(open('refused', { url })).rejects.toThrow(/takes no writes: give the address of the primary/);
    await backend.close?.();
    await eventually(async () => (await connectionsOf('leaks')) === 0);
  });

  it('ends where the server stands still, without its answer', async () => {
    const backend = await open('standing');
    expect(await take(backend, 'held', 'p:1')).toBe('granted');
    const { rows } = await db.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE application_name = 'standing'`,
    );
    expect(rows.length).toBeGreaterThan(0);
    for (const { pid } of rows) process.kill(pid, 'SIGSTOP');
    try {
      await backend.close?.();
    } finally {
      for (const { pid } of rows) process.kill(pid, 'SIGCONT');
    }
  });

  it('opens one connection beside its sessions', async () => {
    const names = Array.from({ length: 40 }, (_, index) => `many:${index}`);
    const holder = await open('holder');
    for (const [index, name] of names.entries()) expect(await take(holder, name, `h:${index}`)).toBe('granted');
    const backend = await open('counted', { sessions: 2 });
    const answers = Promise.all(names.map((name, index) => take(backend, name, `p:${index}`)));
    expect(new Set(await answers)).toEqual(new Set(['busy']));
    // The connections with which it looks for a pooler end at once.
    await eventually(async () => (await connectionsOf('counted')) === 3);
  });

  it('draws no token below one that it drew before, while two sessions raise the sequence', async () => {
    const backend = await open('tokens');
    expect(await take(backend, 'token', 'p:1')).toBe('granted');
    const clients = Array.from({ length: 5 }, () => new pg.Client(server.url));
    for (const client of clients) await client.connect();
    const [high, low, drawer, ...others] = clients as [pg.Client, pg.Client, pg.Client, ...pg.Client[]];
    const draw = async (client: pg.Client) => {
      const { text } = statements.mint;
      const { rows } = await client.query<[number, string]>({ text, values: ['1'], rowMode: 'array' });
      return Number(rows[0]?.[1]);
    };
    const waiting = (count: number) =>
      eventually(async () => (await drawer.query('SELECT 1 FROM pg_locks WHERE NOT granted')).rows.length === count);
    for (let round = 0; round < 20; round++) {
      const last = await draw(drawer);
      // Nothing draws while the definition of the sequence changes.
      await db.query('BEGIN; ALTER SEQUENCE nest_redis_lock.tokens OWNED BY NONE');
      const raised = [high.query(statements.raise.text, [last + 2_000_000])];
      await waiting(1);
      const drawn = others.map(draw);
      await waiting(3);
      raised.push(low.query(statements.raise.text, [last + 1_000_000]));
      await waiting(4);
      await db.query('ROLLBACK');
      await Promise.all(raised);
      expect(await draw(drawer)).toBeGreaterThan(Math.max(...(await Promise.all(drawn))));
    }
    for (const client of clients) await client.end();
  });

  it('draws tokens above all before once a crash or a failover has set the sequence back', async () => {
    const url = await database('set_back');
    const backend = await open('before', { url, sessions: 3 });
    const first = async (used: OpenBackend, ticket: string) => {
      const answer = await used.acquire({ name: 'set back', ticket, ttl: 60_000 });
      await used.release({ name: 'set back', ticket });
      return answer.status === 'granted' ? answer.tokens : { first: NaN, count: NaN };
    };
    for (let round = 0; round < 3; round++) {
      const before = await first(backend, `p:${round}`);
      const root = new pg.Pool({ connectionString: url });
      await root.query(`SELECT setval('nest_redis_lock.tokens', 1)`);
      await root.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'before'`);
      await root.end();
      // A process that has seen no token before.
      const fresh = await open(`after ${round}`, { url });
      expect((await first(fresh, `q:${round}`)).first).toBeGreaterThan(before.first + before.count);
    }
  });

  it.each([
    ['off', 'local'],
    ['remote_write', 'remote_write'],
  ])('has what it draws on the disk, with synchronous_commit = %s', async (given, used) => {
    const url = await database(`durable_${given}`, `synchronous_commit = ${given}`);
    const backend = await open('durable', { url });
    const root = new pg.Pool({ connectionString: url });
    await root.query(`
ALTER TABLE nest_redis_lock.holders ADD COLUMN durability text DEFAULT current_setting('synchronous_commit')`);
    expect(await take(backend, 'durable', 'p:1')).toBe('granted');
    const { rows } = await root.query('SELECT durability FROM nest_redis_lock.holders');
    expect(rows).toEqual([{ durability: used }]);
    await root.end();
  });

  it.each(['SCHEMA nest_redis_lock CASCADE', 'SEQUENCE nest_redis_lock.tokens', 'TABLE nest_redis_lock.holders'])(
    'goes on after DROP %s',
    async (what) => {
      const url = await database(`dropped_${what.slice(0, 6).trim().toLowerCase()}`);
      const backend = await open('dropped', { url });
      const other = await open('other', { url });
      for (const [index, used] of [backend, other].entries()) await take(used, `before:${index}`, 'p:0');
      const root = new pg.Pool({ connectionString: url });
      await root.query(`DROP ${what}`);
      expect(await backend.mint({ name: 'before:0', ticket: 'p:0', leastToken: 1 })).toMatchObject({ count: 1_024 });
      await root.query(`DROP ${what}`);
      expect(await take(backend, 'after', 'p:1')).toBe('granted');
      await root.query(`DROP ${what}`);
      expect(await free(backend, 'after', 'p:1')).toBe('released');
      expect(await take(other, 'after', 'q:1')).toBe('granted');
      expect(lost).toEqual([]);
      expect(await other.inspect({ name: 'after' })).toMatchObject({ owner: 'q:1' });
      expect(await free(backend, 'before:0', 'p:0')).toBe('released');
      await root.query(`DROP ${what}`);
      await root.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dropped'`);
      await eventually(async () => {
        const answer = await take(backend, 'new session', 'p:2').catch(({ message }: Error) => message);
        expect(answer).not.toContain('does not exist');
        return answer === 'granted';
      });
      await root.end();
    },
  );

  describe('a user with the rights of the guide', () => {
    let url: string;
    const grants = /```sql\n(GRANT[^`]*)```/.exec(file('docs/guide/postgres.md'))?.[1] ?? '';
    const asRoot = async (sql: string) => {
      const root = new pg.Client(url);
      await root.connect();
      await root.query(sql);
      await root.end();
    };
    beforeAll(async () => {
      url = await database('rights');
      await db.query('CREATE ROLE shop LOGIN');
      await asRoot(file('docs/postgres.sql'));
    });
    const asShop = () => url.replace('postgres@', 'shop@');

    it('learns before them which it lacks', async () => {
      await asRoot('GRANT USAGE ON SCHEMA nest_redis_lock TO shop');
      await asRoot('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA nest_redis_lock TO shop');
      await expect(open('shop', { url: asShop() })).rejects.toThrow(
        /user "shop" lacks rights: .*GRANT USAGE, SELECT, UPDATE ON SEQUENCE nest_redis_lock\.tokens TO "shop"/,
      );
    });

    it('takes, raises and frees with them', async () => {
      expect(grants).toContain('GRANT');
      await asRoot(grants);
      const backend = await open('shop', { url: asShop() });
      const answer = await backend.acquire({ name: 'x', ticket: 'p:1', ttl: 60_000 });
      const leastToken = (answer.status === 'granted' ? answer.tokens.first : 0) + 3_600_000_000;
      expect((await backend.mint?.({ name: 'x', ticket: 'p:1', leastToken }))?.first).toBeGreaterThanOrEqual(
        leastToken,
      );
      expect(await free(backend, 'x', 'p:1')).toBe('released');
    });
  });
});

describe('lockInTransaction', () => {
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

  it.each([
    [undefined, /is undefined \(undefined\); give a string/],
    [null, /is null/],
    ['', /is an empty string/],
    [NaN, /is NaN \(number\)/],
    [{}, /is \{\} \(object\)/],
    [['order:6'], /\(object\)/],
    ['a\ud800', /half a surrogate pair/],
  ])('refuses the name %j, which would be one for many', async (name, message) => {
    const [first] = clients();
    await first.query('BEGIN');
    const taken = lockInTransaction(first, name as string);
    await expect(taken).rejects.toThrow(message);
    await expect(taken).rejects.toMatchObject({ code: 'LOCK_KEY' });
    const { rows } = await first.query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory'`);
    expect(rows).toEqual([]);
  });

  it.each([
    [{ timeout: 1 }, /Unknown option of lockInTransaction\(\) "timeout"; give any of wait, prefix/],
    [{ prefix: 'x{' }, /Option "prefix" is "x\{"; give a string without braces/],
    [{ prefix: 'shop:cache' }, /give a prefix without "cache"/],
    [{ prefix: 1 }, /Option "prefix" is 1/],
    [{ wait: Infinity }, /Option "wait" is Infinity/],
    [null, /Option "options" is null; give an object of options of lockInTransaction/],
  ])('refuses the options %j', async (options, message) => {
    const [first] = clients();
    await first.query('BEGIN');
    const taken = lockInTransaction(first, 'order:7', options as object);
    await expect(taken).rejects.toThrow(message);
    await expect(taken).rejects.toBeInstanceOf(LockConfigError);
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
});

/** Whole messages of a server, with `altered` in the place of each of `NOTIFY`. */
function altering(messages: Buffer, altered: (message: Buffer) => Buffer): Buffer {
  const kept: Buffer[] = [];
  for (let at = 0; at < messages.length;) {
    const end = at + 1 + messages.readInt32BE(at + 1);
    const message = messages.subarray(at, end);
    kept.push(message[0] === 'A'.charCodeAt(0) ? altered(message) : message);
    at = end;
  }
  return Buffer.concat(kept);
}

function withoutMessages(messages: Buffer): Buffer {
  return altering(messages, () => Buffer.alloc(0));
}

/** The channel of a message follows its length and the process that sent it. */
function withOtherMessages(messages: Buffer): Buffer {
  return altering(messages, (message) => {
    const altered = Buffer.from(message);
    altered.write('x', 9);
    return altered;
  });
}
