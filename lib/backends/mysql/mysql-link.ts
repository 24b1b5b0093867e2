import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { Timeouts } from '../../timing/clock.js';
import { codeOf, failureOf } from '../failures.js';
import { ConnectionWatch, Listeners } from '../listeners.js';
import {
  databaseOf,
  readConnection,
  serverOf,
  MysqlFailure,
  REMEDIES,
  type GivenConnection,
  foreignTransaction,
  readHeader,
  readRows,
  ROWS,
  type Header,
  type Query,
} from './mysql-connection.js';
import type { PreparableStatement } from './row-statements.js';

/** As text, or so that the server can keep it prepared. */
export type Statement = string | PreparableStatement;

/** A connection that has not answered for this long (ms) is closed: its network may be cut. */
const LONGEST_ANSWER = 10_000;
/** How long (ms) a statement waits for a connection; longer than `connectTimeout` of mysql2, whose error says more. */
const LONGEST_WAIT = 11_000;
/** How often a statement is sent whose transaction the server rolled back to end a deadlock. */
const DEADLOCK_TRIES = 5;

/** Sends statements to the server, each on any connection of the pool and in a transaction of its own. */
export class MysqlLink {
  /** How a connection of our own reaches the server. */
  readonly options: PoolOptions;
  readonly listeners = new Listeners();
  private readonly watch = new ConnectionWatch(this.listeners.connected);
  private readonly connections: LentConnections;
  private readonly prepared = new PreparedStatements();
  private readonly timeouts = new Timeouts();
  /** How many statements wait for a connection. */
  private waiting = 0;
  private closed = false;

  constructor(connection: unknown) {
    const given = readConnection(connection);
    this.options = given.options;
    this.connections = new LentConnections(given, this.watch);
  }

  /** The database that the connections begin in. */
  get database(): string | undefined {
    return databaseOf(this.connections.pool);
  }

  /** Runs a statement that changes rows. */
  async change(statement: Statement): Promise<Header> {
    for (let tries = 1; ; tries += 1) {
      try {
        return readHeader(await this.send(statement));
      } catch (error) {
        if (codeOf(error) !== 'ER_LOCK_DEADLOCK' || tries === DEADLOCK_TRIES) throw error;
      }
    }
  }

  async rows<Row>({ sql, columns }: Query<Row>): Promise<readonly Row[]> {
    return readRows(await this.send(sql), columns);
  }

  async ping(): Promise<void> {
    await this.rows({ sql: 'SELECT 1', columns: {} });
  }

  /** The server as messages name it. */
  get server(): string {
    return serverOf(this.connections.pool);
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): Error {
    const { server } = this;
    if (error !== undefined) return failureOf(server, error, REMEDIES, MysqlFailure);
    const why =
      this.connections.shortage(this.waiting) ??
      'does not answer; is it busy or paused, or is the row of the lock locked by a transaction?';
    return new MysqlFailure(`${server}: ${why}`);
  }

  /** Lets statements under way end, for a moment. */
  close(): Promise<void> {
    this.closed = true;
    this.watch.close();
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
      const answered: Answered = (failure, answer, header = answer) => {
        if (!expiry.leave()) return;
        if (failure && prepared && this.prepared.refused(failure, prepared, connection)) {
          resolve(this.ask(connection, prepared.text()));
          return;
        }
        // Of a connection that breaks in mid-statement, the pool tells nothing.
        if (isFatal(failure)) this.watch.tell();
        const mixed = failure || header === OF_OWN ? undefined : foreignTransaction(header);
        if (mixed || isReadOnly(failure)) cutOff(connection);
        else connection.release();
        if (failure ?? mixed) reject(failure ?? mixed);
        else resolve(answer);
      };
      if (prepared) connection.execute(prepared.sql, prepared.values, answered);
      else this.askAsText(connection, typeof statement === 'string' ? statement : statement.text(), answered);
    });
  }

  /** With rows, mysql2 does not tell of a transaction: another statement asks, on a pool of the application's. */
  private askAsText(connection: PoolConnection, sql: string, answered: Answered): void {
    connection.query({ sql, ...ROWS }, (failure, answer: unknown) => {
      if (failure || !Array.isArray(answer)) answered(failure, answer);
      else if (this.connections.ownOnly) answered(null, answer, OF_OWN);
      else connection.query({ sql: 'DO 0' }, (unknown, header) => answered(unknown, answer, header));
    });
  }
}

/** How a statement ended. `header` says whether the connection is inside a transaction, where `answer` is rows. */
type Answered = (failure: Error | null, answer: unknown, header?: unknown) => void;

/** In place of that header: nobody else begins a transaction on a connection of the backend's own. */
const OF_OWN = {};

/** How a server, or a proxy before it, refuses a prepared statement; each before it runs. */
const PREPARED_REFUSALS: ReadonlySet<string | undefined> = new Set([
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
class PreparedStatements {
  private pausedUntil = -Infinity;

  /** Whether the statement goes prepared. */
  suits(statement: Statement): statement is PreparableStatement {
    return typeof statement !== 'string' && performance.now() >= this.pausedUntil;
  }

  /** Whether the statement was refused because it was prepared: sent as text, it may succeed. */
  refused(error: unknown, { sql }: PreparableStatement, connection: PoolConnection): boolean {
    if (!PREPARED_REFUSALS.has(codeOf(error))) return false;
    this.pausedUntil = performance.now() + PAUSE;
    // mysql2 would send the number that the server does not know again.
    connection.unprepare(sql);
    return true;
  }
}

/** Gets a connection, which it releases, or why there is none. */
type Use = (error: Error | null, connection?: PoolConnection) => void;

/**
 * How a pool refuses a call while all connections are in use and its options let no call wait, or once it has ended.
 */
const POOL_REFUSALS: ReadonlySet<string> = new Set([
  'No connections available.',
  'Queue limit reached.',
  'Pool is closed.',
]);

/**
 * The connections of the application's pool, or of one of our own. While all connections of the application's pool are
 * in use, statements take one spare connection of our own: code that holds a connection of the pool may wait for a
 * lock, and a lock must be renewed while a transaction runs.
 */
class LentConnections {
  private readonly given: Pool | undefined;
  /** The spare connection, where a pool is given. */
  private readonly own: OwnPool;
  /** Whether a call of ours waits in the pool of the application, which shows that all its connections are in use. */
  private inLine = false;

  constructor(
    { pool, options }: GivenConnection,
    private readonly watch: ConnectionWatch,
  ) {
    this.given = pool;
    if (pool) watch.watch(pool, 'connection');
    this.own = new OwnPool(pool ? { ...options, connectionLimit: 1 } : options, watch);
  }

  get pool(): Pool {
    return this.given ?? this.own.pool;
  }

  /** Whether all connections are of a pool of our own. */
  get ownOnly(): boolean {
    return this.given === undefined;
  }

  /** Whether statements wait because all connections are in use; absent where they do not wait, or for the server. */
  shortage(waiting: number): string | undefined {
    if (waiting === 0 || !(this.given ? this.inLine : this.own.full)) return undefined;
    return (
      `all ${connectionLimit(this.pool)} connections of its pool are in use, and ${waiting} statements wait for one: ` +
      'raise its "connectionLimit", or release connections sooner'
    );
  }

  lend(use: Use): void {
    if (!this.given || this.inLine) this.lendOwn(use);
    else this.lendGiven(this.given, use);
  }

  close(): Promise<void> {
    return this.own.close();
  }

  private lendOwn(use: Use): void {
    this.own.pool.getConnection(use);
  }

  private lendGiven(pool: Pool, use: Use): void {
    let queued = false;
    const note = () => (queued = true);
    pool.on('enqueue', note);
    pool.getConnection((error, connection) => {
      if (queued) {
        this.inLine = false;
        if (!error) connection.release();
      } else if (error && POOL_REFUSALS.has(error.message)) this.lendOwn(use);
      else {
        // It may have been open before the watch began.
        if (connection) this.watch.see(connection);
        use(error, connection);
      }
    });
    pool.off('enqueue', note);
    if (!queued) return;
    // The call cannot be withdrawn from the pool's queue: it stays there, the only one of ours.
    this.inLine = true;
    this.lendOwn(use);
  }
}

/** How long (ms) statements under way may take when the application ends. */
const LONGEST_FAREWELL = 1_000;
/**
 * Ends transactions at once, and lets no statement wait for a row that another client keeps locked for longer than a
 * caller waits for its answer.
 */
const OWN_SESSION = 'SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1';

/** A pool of the backend's own. It connects at its first use. */
class OwnPool {
  private opened: Pool | undefined;
  private readonly connections = new Set<PoolConnection>();
  private readonly timeouts = new Timeouts();

  constructor(
    private readonly options: PoolOptions,
    private readonly watch: ConnectionWatch,
  ) {}

  get pool(): Pool {
    return (this.opened ??= this.open());
  }

  /** Whether it may open no further connection. */
  get full(): boolean {
    return this.connections.size >= connectionLimit(this.pool);
  }

  /** Lets statements under way end, for a moment. */
  async close(): Promise<void> {
    const { opened } = this;
    if (!opened) return;
    await new Promise<void>((resolve) => {
      const expiry = this.timeouts.start(LONGEST_FAREWELL, { expire: resolve });
      opened.end(() => {
        expiry.leave();
        resolve();
      });
    });
    for (const connection of this.connections) cutOff(connection);
  }

  private open(): Pool {
    // A reset would undo the settings of the session.
    const pool = createPool({ ...this.options, resetOnRelease: false });
    this.watch.watch(pool, 'connection');
    pool.on('connection', (connection) => {
      this.connections.add(connection);
      connection.on('end', () => this.connections.delete(connection));
      // Runs before the statement that opened the connection; where it is refused, the defaults of the server hold.
      connection.query(OWN_SESSION, () => {});
    });
    return pool;
  }
}

/** Closes the connection without a farewell, which a server that does not answer would not read. */
function cutOff(connection: PoolConnection): void {
  connection.destroy();
  (connection as { stream?: { destroy(): void } }).stream?.destroy();
}

function connectionLimit(pool: Pool): number {
  return pool.config.connectionLimit || Infinity;
}

/** Whether the connection broke. */
function isFatal(error: Error | null): boolean {
  return (error as { fatal?: boolean } | null)?.fatal === true;
}

/** Whether the server of the connection has become a replica: the next connection may reach the primary. */
function isReadOnly(error: Error | null): boolean {
  const code = error ? codeOf(error) : undefined;
  return code === 'ER_OPTION_PREVENTS_STATEMENT' || code === 'ER_READ_ONLY_MODE';
}
