import { randomUUID } from 'node:crypto';
import type { Connection } from 'mysql2';
import type { LockBackend, LockState, LockStore, TokenRange } from '../../contracts/lock-backend.js';
import { BackendRefusal, ownStore } from '../../contracts/store.js';
import { lockOption } from '../../options/option-checks.js';
import { Timeouts } from '../../timing/clock.js';
import { SESSION_TRAITS, sessionLocks, SessionSlots } from '../sessions/session-locks.js';
import type { StoreSession } from '../sessions/session-slot.js';
import {
  LockTable,
  getLockNameOf,
  type TableStatements,
  TOKENS,
  bytes,
  NOW,
  oneOf,
  reserve,
  unusedFor,
  TRIAL,
} from './lock-table.js';
import {
  openConnection,
  type MysqlConnection,
  number,
  orNull,
  readHeader,
  readRows,
  ROWS,
  text,
  type Query,
} from './mysql-connection.js';
import { MysqlLink } from './mysql-link.js';
import { type GetLockOptions, GET_LOCK_OPTIONS, type GetLockSettings } from './mysql-options.js';

/**
 * Locks of `GET_LOCK`: they end with the session that took them, at once when its process dies. The sessions are
 * connections of the backend's own, also where a pool is passed in.
 *
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function getLock(connection: MysqlConnection, options: GetLockOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of getLock()');
  return getLockOn(new MysqlLink(connection), GET_LOCK_OPTIONS.settings(given));
}

function getLockOn(link: MysqlLink, settings: GetLockSettings): LockBackend {
  const { table, sessions } = settings;
  const tokens = new LockTable(link, new TokenStatements(table), settings);
  const open = (ended: (why: Error) => void) => GetLockSession.open(link, tokens, (why) => ended(link.diagnose(why)));
  const slots = new SessionSlots(open, sessions, link.listeners.lost);
  let database: string | undefined;

  const inspect = async (key: string): Promise<LockState | null> => {
    const [used] = await link.rows(usedLock(key));
    if (!used || used.connection === null) return null;
    const [row] = await tokens.rows(tokens.statements.last(key));
    // The row is written after the lock was taken.
    const here = slots.of(key).holds.get(key)?.ticket;
    const owner = here ?? (row?.owner || `connection ${used.connection}`);
    return { owner, ttl: Infinity, fencingToken: row?.token ?? null, waiting: 0 };
  };

  return {
    name: 'mysql-get-lock',
    traits: SESSION_TRAITS,
    open(module) {
      const keyOf = (name: string) => {
        // Servers that ignore the case of a database's name may answer to each way of writing it.
        database ??= (databaseOfTable(table) ?? link.database ?? '').toLowerCase();
        return getLockNameOf(database, module.prefix, name);
      };
      const locks = sessionLocks(slots, keyOf, inspect);
      const store: LockStore = ownStore({
        ...locks,
        acquire(request) {
          tokens.sweeper.start();
          return locks.acquire(request);
        },
        start: () => tokens.start(store, keyOf(TRIAL)),
        stop: link.listeners.add(module),
      });
      return store;
    },
    ping: () => link.ping(),
    diagnose: (error) => link.diagnose(error),
    async close() {
      tokens.sweeper.stop();
      await slots.close();
      await link.close();
    },
  };
}

/** The database of a quoted `database.table`. */
function databaseOfTable(table: string): string | undefined {
  return /^`(.+)`\./.exec(table)?.[1];
}

/** How long (ms) a session may take to answer. One that does not is ended: its connection may be half open. */
const PATIENCE = 3_000;
/** Seconds after which the server ends the session of a process that stands still; each lease ends before. */
const WAIT_TIMEOUT = 30;

const SETTINGS = `SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, wait_timeout = ${WAIT_TIMEOUT}`;

/** The variable of a session that says whose it is. */
const MARK = '@nest_redis_lock_session';

interface Answer {
  readonly mark: string | null;
  /** 1 where the function has done it. */
  readonly done: number | null;
}

const ANSWER: Query<Answer>['columns'] = { mark: orNull(text), done: orNull(number) };

/** Which connection of the server has a lock. */
function usedLock(key: string): Query<{ connection: number | null }> {
  return { sql: `SELECT IS_USED_LOCK('${key}') AS connection`, columns: { connection: orNull(number) } };
}

/** A connection of our own that has locks of `GET_LOCK`. */
class GetLockSession implements StoreSession {
  private readonly timeouts = new Timeouts();
  /** Kept in the session itself: a proxy may lend one session to two connections, and its id would fit both. */
  private readonly mark = randomUUID();
  private over = false;

  private constructor(
    private readonly connection: Connection,
    private readonly tokens: LockTable<TokenStatements>,
    private readonly ended: (why: Error) => void,
    private readonly server: string,
  ) {
    connection.on('error', (error: Error) => this.end(error));
    connection.on('end', () => this.end(new Error('the server closed the connection')));
  }

  static async open(
    link: MysqlLink,
    tokens: LockTable<TokenStatements>,
    ended: (why: Error) => void,
  ): Promise<GetLockSession> {
    const session = new GetLockSession(openConnection(link.options), tokens, ended, link.server);
    try {
      // Where a mark is there already, somebody else uses this session.
      await session.send(`SET ${MARK} = IF(${MARK} IS NULL, '${session.mark}', ${MARK})`);
      await session.ask('1');
      await session.send(SETTINGS);
      return session;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  async take(key: string, ticket: string): Promise<TokenRange | null> {
    try {
      // A time limit of 0: the session never waits, so that no other name waits for it.
      const { done } = await this.ask(`GET_LOCK('${key}', 0)`);
      if (done === 0) return null;
      if (done !== 1) throw new Error(`GET_LOCK answered ${done ?? 'NULL'}: see the log of the server`);
      return await this.issue(this.tokens.statements.grant(key, ticket));
    } catch (error) {
      // An interrupted statement may have taken the lock.
      await this.free(key).catch(() => {});
      throw error;
    }
  }

  /** Ends the session where it fails: the lock would stay with a session that nobody asks to free it again. */
  async free(key: string): Promise<void> {
    try {
      await this.ask(`RELEASE_LOCK('${key}')`);
    } catch (error) {
      this.end(error as Error);
      throw error;
    }
  }

  mint(least: number, key: string): Promise<TokenRange> {
    return this.issue(this.tokens.statements.issue(key, least));
  }

  async check(): Promise<void> {
    await this.ask('1');
  }

  async close(): Promise<void> {
    this.over = true;
    this.cutOff();
  }

  private async issue(sql: string): Promise<TokenRange> {
    const { insertId } = await this.tokens.change(sql, async (each) => readHeader(await this.send(each)));
    return { first: insertId, count: TOKENS };
  }

  /** Evaluates an expression in the session, and ends it where a proxy has answered from another one. */
  private async ask(expression: string): Promise<Answer> {
    const sql = `SELECT IF(${MARK} = '${this.mark}', ${expression}, NULL) AS done, ${MARK} AS mark`;
    const [answer] = readRows(await this.send(sql), ANSWER);
    if (answer?.mark === this.mark) return answer;
    const error = new BackendRefusal(`${this.server}: ${THROUGH_POOLER}`);
    this.end(error);
    throw error;
  }

  private send(sql: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const fail = (error: Error) => {
        // The server may have taken the lock all the same: the end of the session frees what it has.
        if ((error as { fatal?: boolean }).fatal ?? false) this.end(error);
        reject(error);
      };
      const expiry = this.timeouts.start(PATIENCE, {
        expire: () =>
          fail(Object.assign(new Error(`the server did not answer within ${PATIENCE} ms`), { fatal: true })),
      });
      this.stream?.ref();
      this.connection.query({ sql, ...ROWS }, (error, answer) => {
        if (!expiry.leave()) return;
        this.stream?.unref();
        if (error) fail(error);
        else resolve(answer);
      });
    });
  }

  private end(why: Error): void {
    if (this.over) return;
    this.over = true;
    this.cutOff();
    this.ended(why);
  }

  /** The server frees the locks as soon as it sees the connection closed. */
  private cutOff(): void {
    this.connection.destroy();
    this.stream?.destroy();
  }

  /** An idle session does not keep the process alive. */
  private get stream(): { ref(): void; unref(): void; destroy(): void } | undefined {
    return (this.connection as { stream?: { ref(): void; unref(): void; destroy(): void } }).stream;
  }
}

const THROUGH_POOLER =
  'a proxy lets one connection run on several sessions of the server, or hands on a session that it did not reset, so ' +
  'that locks are lost: give the address of the server itself, or use leaseTable()';

/**
 * The statements on the table of fencing tokens: for each name one row, which the session that has the lock changes.
 */
class TokenStatements implements TableStatements {
  constructor(private readonly table: string) {}

  create(): string {
    return `CREATE TABLE IF NOT EXISTS ${this.table} (
  id BINARY(32) NOT NULL PRIMARY KEY,
  owner VARBINARY(255) NOT NULL,
  token BIGINT NOT NULL,
  used_at DATETIME(6) NOT NULL
) ENGINE = InnoDB`;
  }

  /** Writes the new owner and reserves tokens for it; `insertId` is the first one. */
  grant(id: string, ticket: string): string {
    return this.upsert(id, bytes(ticket), `owner = ${bytes(ticket)},`, 0);
  }

  /** Reserves further tokens for the owner. */
  issue(id: string, leastToken: number): string {
    return this.upsert(id, "''", '', leastToken);
  }

  last(id: string): Query<{ owner: string; token: number }> {
    const sql = `SELECT owner, token FROM ${this.table} WHERE id = x'${id}'`;
    return { sql, columns: { owner: text, token: number } };
  }

  private upsert(id: string, owner: string, assignment: string, leastToken: number): string {
    return `INSERT INTO ${this.table} (id, owner, token, used_at)
VALUES (x'${id}', ${owner}, ${reserve('0', leastToken, '0')}, ${NOW})
ON DUPLICATE KEY UPDATE ${assignment} token = ${reserve('token', leastToken, '0')}, used_at = ${NOW}`;
  }

  unused(age: number, most: number): Query<{ id: string }> {
    // The row of a lock that a session has stays, however long it has it.
    const sql = `SELECT HEX(id) AS id FROM ${this.table}
WHERE ${unusedFor(age, 'used_at')} AND IS_USED_LOCK(LOWER(HEX(id))) IS NULL LIMIT ${most}`;
    return { sql, columns: { id: text } };
  }

  delete(ids: readonly string[], age: number): string {
    return `DELETE FROM ${this.table} WHERE ${oneOf(ids)} AND ${unusedFor(age, 'used_at')}`;
  }
}
