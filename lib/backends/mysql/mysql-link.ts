import type { PoolConnection, PoolOptions, ResultSetHeader, RowDataPacket } from 'mysql2';
import { Timeouts } from '../../timing/timeouts.js';
import { Reporters } from '../reporters.js';
import { databaseOf, readConnection, serverOf, LentConnections, cutOff } from './connections.js';

/** A connection that has not answered for this long (ms) is closed: its network may be cut. */
const LONGEST_ANSWER = 10_000;
/** How long (ms) a statement waits for a connection; longer than `connectTimeout` of mysql2, whose error says more. */
const LONGEST_WAIT = 11_000;
/** How often a statement is sent whose transaction the server rolled back to end a deadlock. */
const DEADLOCK_TRIES = 5;
/** Server status: the connection is inside a transaction. */
const IN_TRANSACTION = 1;

/** Options of the application's pool that change how rows are read. */
const ROWS = { typeCast: true, supportBigNumbers: false, rowsAsArray: false, nestTables: false } as const;

/** Sends statements to the server, each on any connection of the pool and in a transaction of its own. */
export class MysqlLink {
  /** How a connection of our own reaches the server. */
  readonly options: PoolOptions;
  readonly reporters = new Reporters();
  private readonly connections: LentConnections;
  private readonly prepared = new PreparedStatements();
  private readonly timeouts = new Timeouts();
  /** How many statements wait for a connection. */
  private waiting = 0;
  private closed = false;

  constructor(connection: unknown) {
    const given = readConnection(connection);
    this.options = given.options;
    this.connections = new LentConnections(given);
  }

  /** The database that the connections begin in. */
  get database(): string | undefined {
    return databaseOf(this.connections.pool);
  }

  /** Runs a statement that changes rows. */
  async change(statement: Statement): Promise<ResultSetHeader> {
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.send(statement)) as ResultSetHeader;
      } catch (error) {
        if (codeOf(error) !== 'ER_LOCK_DEADLOCK' || tries === DEADLOCK_TRIES) throw error;
      }
    }
  }

  async rows<Row>(sql: string): Promise<readonly Row[]> {
    return (await this.send(sql)) as RowDataPacket[] as Row[];
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): MysqlFailure {
    const server = serverOf(this.connections.pool);
    if (error !== undefined) return diagnose(server, error);
    const why =
      this.connections.shortage(this.waiting) ??
      'does not answer; is it busy or paused, or is the row of the lock locked by a transaction?';
    return new MysqlFailure(`${server}: ${why}`);
  }

  /** Lets statements under way end, for a moment. */
  close(): Promise<void> {
    this.closed = true;
    return this.connections.close();
  }

  private async send(statement: Statement): Promise<unknown> {
    if (this.closed) throw new Error('The backend is closed: the application has ended');
    return this.ask(await this.connection(), statement);
  }

  /** A connection of the pool. One that comes too late is released: a statement that nobody waits for is not sent. */
  private connection(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.waiting += 1;
      const expiry = this.timeouts.start(LONGEST_WAIT, {
        expire: () => {
          this.waiting -= 1;
          reject(new Error(`no connection within ${LONGEST_WAIT} ms`));
        },
      });
      this.connections.lend((error, connection) => {
        if (!expiry.leave()) return connection?.release();
        this.waiting -= 1;
        if (error) reject(error);
        else resolve(connection as PoolConnection);
      });
    });
  }

  private ask(connection: PoolConnection, statement: Statement): Promise<unknown> {
    // On a pool of the application's, prepared statements would outlive the backend.
    const prepared = this.connections.ownOnly && this.prepared.suits(statement) ? statement : undefined;
    return new Promise((resolve, reject) => {
      const expiry = this.timeouts.start(LONGEST_ANSWER, {
        expire: () => {
          cutOff(connection);
          reject(new Error(`the server did not answer within ${LONGEST_ANSWER} ms; the connection was closed`));
        },
      });
      const answered = (failure: Error | null, answer: unknown) => {
        if (!expiry.leave()) return;
        if (failure && prepared && this.prepared.refused(failure, prepared, connection)) {
          resolve(this.ask(connection, prepared.text()));
          return;
        }
        const mixed = failure ? undefined : foreignTransaction(answer);
        if (mixed || isReadOnly(failure)) cutOff(connection);
        else connection.release();
        if (failure ?? mixed) reject(failure ?? mixed);
        else resolve(answer);
      };
      if (prepared) connection.execute(prepared.sql, prepared.values, answered);
      else connection.query({ sql: typeof statement === 'string' ? statement : statement.text(), ...ROWS }, answered);
    });
  }
}

/** A lock that was taken inside a transaction of the application would end with its rollback. */
function foreignTransaction(answer: unknown): Error | undefined {
  const { serverStatus = 0 } = answer as { serverStatus?: number };
  if ((serverStatus & IN_TRANSACTION) === 0) return undefined;
  return new Error(
    'a connection of the pool is inside a transaction; commit before you release a connection, and leave autocommit on',
  );
}

/** Whether the server of the connection has become a replica: the next connection may reach the primary. */
function isReadOnly(error: Error | null): boolean {
  const code = error ? codeOf(error) : undefined;
  return code === 'ER_OPTION_PREVENTS_STATEMENT' || code === 'ER_READ_ONLY_MODE';
}

/** A statement with values of one call. */
export interface PreparableStatement {
  /** With a `?` for each of the values, and the same for all calls. */
  readonly sql: string;
  readonly values: string[];
  /** The statement with its values, which no `?` stands for. */
  text(): string;
}

/** As text, or so that the server can keep it prepared. */
export type Statement = string | PreparableStatement;

/** How a server, or a proxy before it, refuses a prepared statement; each before it runs. */
const REFUSALS: ReadonlySet<string | undefined> = new Set([
  'ER_UNSUPPORTED_PS',
  'ER_UNKNOWN_COM_ERROR',
  'ER_MAX_PREPARED_STMT_COUNT_REACHED',
  // A proxy runs it on another session than the one that prepared it.
  'ER_UNKNOWN_STMT_HANDLER',
  'ER_WRONG_ARGUMENTS',
  'ER_NEED_REPREPARE',
]);

/** How long (ms) statements go as text after a refusal. */
const PAUSE = 60_000;

/**
 * Which statements the server keeps prepared, in place of reading their text each time: on each connection a few that
 * do not depend on names, because the server counts those of all its clients together.
 */
export class PreparedStatements {
  private pausedUntil = -Infinity;

  /** Whether the statement goes prepared. */
  suits(statement: Statement): statement is PreparableStatement {
    return typeof statement !== 'string' && performance.now() >= this.pausedUntil;
  }

  /** Whether the statement was refused because it was prepared: sent as text, it may succeed. */
  refused(error: unknown, { sql }: PreparableStatement, connection: PoolConnection): boolean {
    if (!REFUSALS.has(codeOf(error))) return false;
    this.pausedUntil = performance.now() + PAUSE;
    // mysql2 would send the number that the server does not know again.
    connection.unprepare(sql);
    return true;
  }
}

/** Why a call to MySQL or MariaDB failed: names the server, the cause and the remedy. */
export class MysqlFailure extends Error {
  override readonly name = 'MysqlFailure';
  /** The code of the cause, such as `ER_LOCK_WAIT_TIMEOUT`. */
  readonly code?: string;

  constructor(message: string, cause?: Error) {
    super(message, cause && { cause });
    const code = cause && codeOf(cause);
    if (code !== undefined) this.code = code;
  }
}

/** What an operator can do about an error. The first pattern that matches its code or message applies. */
const REMEDIES: readonly (readonly [pattern: RegExp, remedy: string])[] = [
  [/ECONNREFUSED/, 'nothing listens there: start the server, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/ENOENT/, 'the socket does not exist: start the server, or correct "socketPath"'],
  [
    /no connection within/,
    'all of the pool are in use, or the server accepts none: raise "connectionLimit", or see its log',
  ],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|did not answer/, 'nothing answers there: check host, port and firewall'],
  [/ER_ACCESS_DENIED_ERROR|ER_ACCESS_DENIED_NO_PASSWORD/, 'correct user and password'],
  [
    /ER_DBACCESS_DENIED_ERROR|ER_TABLEACCESS_DENIED_ERROR|ER_SPECIFIC_ACCESS_DENIED/,
    'grant what docs/guide/mysql.md lists',
  ],
  [/ER_NO_DB_ERROR/, 'give a database in the URL, or "table" as database.table'],
  [/ER_BAD_DB_ERROR/, 'the database does not exist: create it, or correct the URL'],
  [/ER_NO_SUCH_TABLE/, 'create the table with the SQL of docs/guide/mysql.md, or leave out "createTable: false"'],
  [/ER_BAD_FIELD_ERROR/, 'the table has other columns: drop it, or give another "table"'],
  [/ER_LOCK_WAIT_TIMEOUT/, 'another transaction keeps the row locked: find it with SHOW ENGINE INNODB STATUS'],
  [
    /ER_CON_COUNT_ERROR|ER_USER_LIMIT_REACHED|ER_TOO_MANY_USER_CONNECTIONS/,
    'raise max_connections, or lower "connectionLimit"',
  ],
  [
    /ER_OPTION_PREVENTS_STATEMENT|ER_READ_ONLY_MODE|ER_CANT_EXECUTE_IN_READ_ONLY/,
    'the server is read-only: give the address of the primary',
  ],
  [
    /ER_NOT_SUPPORTED_YET|ER_UNKNOWN_ERROR.*GET_LOCK|pxc_strict_mode/,
    'GET_LOCK does not work on a Galera cluster: use leaseTable(...)',
  ],
  [/PROTOCOL_CONNECTION_LOST|ECONNRESET|EPIPE|closed state/, 'the connection was closed: see the log of the server'],
  [/ER_SERVER_SHUTDOWN/, 'the server shuts down: wait until it is back'],
];

/** Errors of one row, for which the server refuses a statement on several. */
const OF_ONE_ROW: ReadonlySet<string | undefined> = new Set([
  'ER_LOCK_DEADLOCK',
  'ER_LOCK_WAIT_TIMEOUT',
  'ER_DATA_TOO_LONG',
]);

/** Whether a statement on several rows may succeed for each of the others. */
export function isOfOneRow(error: unknown): boolean {
  return OF_ONE_ROW.has(codeOf(error));
}

/** Whether the statement waited for a row that another transaction keeps locked. */
export function isLockedRow(error: unknown): boolean {
  return codeOf(error) === 'ER_LOCK_WAIT_TIMEOUT';
}

/** For a statement that is not sent, because too many others wait for its row. */
export function rowStaysLocked(waiting: number): Error {
  return Object.assign(new Error(`${waiting} statements wait for the row`), { code: 'ER_LOCK_WAIT_TIMEOUT' });
}

/** One line that names the server, the cause and the remedy. */
export function diagnose(server: string, error: unknown): MysqlFailure {
  if (error instanceof MysqlFailure) return error;
  const cause = error instanceof Error ? error : new Error(String(error));
  const code = codeOf(cause);
  const text = (cause.message || String(code)).split('\n', 1)[0] as string;
  const shown = code === undefined || text.includes(code) ? text : `${text} (${code})`;
  const remedy = REMEDIES.find(([pattern]) => pattern.test(`${code ?? ''} ${cause.message}`))?.[1];
  return new MysqlFailure(`${server}: ${shown}${remedy === undefined ? '' : `; ${remedy}`}`, cause);
}

export function codeOf(error: unknown): string | undefined {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : undefined;
}
