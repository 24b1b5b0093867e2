import {
  createConnection,
  type Connection,
  type Pool,
  type PoolOptions,
  type PoolConnection,
  createPool,
} from 'mysql2';
import type { Pool as PromisePool } from 'mysql2/promise';
import { LockConfigError } from '../../errors/lock-errors.js';
import { Timeouts } from '../../timing/timeouts.js';

/**
 * A pool of `mysql2` or `mysql2/promise`, which is used and never closed; or a URL or the options of a pool that the
 * backend opens at its first use and closes.
 */
export type MysqlConnection = string | PoolOptions | Pool | PromisePool;

export interface GivenConnection {
  /** The pool of the application; absent where the backend opens its own. */
  readonly pool: Pool | undefined;
  /** The options of an own pool or connection. */
  readonly options: PoolOptions;
}

const PROTOCOLS = ['mysql:', 'mariadb:'];
const REMEDY = "give a URL such as 'mysql://user:password@host:3306/database', pool options, or a pool of mysql2";

/**
 * @throws LockConfigError for what is neither URL, options nor a pool; without showing it, as it may hold a password
 */
export function readConnection(connection: unknown): GivenConnection {
  if (typeof connection === 'string') {
    if (!URL.canParse(connection)) throw refused('text that is not a URL');
    // mysql2 takes any URL, and would greet the server of another store.
    const { protocol } = new URL(connection);
    if (!PROTOCOLS.includes(protocol)) throw refused(`a ${protocol}// URL`);
    return { pool: undefined, options: { uri: connection } };
  }
  if (typeof connection !== 'object' || connection === null) throw refused(String(connection));
  if (Array.isArray(connection)) throw refused('a list');
  const pool = 'pool' in connection ? connection.pool : connection;
  if (isPool(pool)) return { pool, options: optionsOf(pool) };
  if ('getConnection' in connection || 'query' in connection) throw refused('a client that is no pool');
  // mysql2 passes over such an option, and would connect to its default server.
  const notOfMysql = ['url', 'connectionString'].find((name) => name in connection);
  if (notOfMysql) throw refused(`options with "${notOfMysql}", which mysql2 calls "uri"`);
  return { pool: undefined, options: connection };
}

/** Opens one connection, outside of every pool. */
export function openConnection(options: PoolOptions): Connection {
  const own = { ...options };
  for (const name of OF_POOLS) delete own[name];
  return createConnection(own);
}

const OF_POOLS = [
  'waitForConnections',
  'connectionLimit',
  'maxIdle',
  'idleTimeout',
  'queueLimit',
  'resetOnRelease',
] as const satisfies readonly (keyof PoolOptions)[];

/** The database that the connections of the pool begin in. */
export function databaseOf(pool: Pool): string | undefined {
  return connectionConfig(pool).database;
}

/** The server as messages name it. Passwords and users stay out. */
export function serverOf(pool: Pool): string {
  const { host, port, socketPath, database } = connectionConfig(pool);
  const place = socketPath ?? `${host}:${port}`;
  return `MySQL server ${place}${database === undefined ? '' : `, database "${database}"`}`;
}

function isPool(value: unknown): value is Pool {
  if (typeof value !== 'object' || value === null) return false;
  const { getConnection, config } = value as { getConnection?: unknown; config?: { connectionConfig?: unknown } };
  return typeof getConnection === 'function' && config?.connectionConfig !== undefined;
}

function connectionConfig(pool: Pool): PoolOptions {
  // The types of mysql2 say that `config` has the options themselves; it has had them one level below since 1.0.
  return (pool.config as { connectionConfig?: PoolOptions }).connectionConfig ?? pool.config;
}

/** What a connection of our own needs in order to reach the same server as the pool. */
function optionsOf(pool: Pool): PoolOptions {
  const config = connectionConfig(pool);
  const options: Record<string, unknown> = {};
  for (const name of REACHING) if (config[name] !== undefined) options[name] = config[name];
  return options;
}

const REACHING = [
  'host',
  'port',
  'localAddress',
  'socketPath',
  'user',
  'password',
  'password2',
  'password3',
  'passwordSha1',
  'database',
  'ssl',
  'connectTimeout',
  'authPlugins',
  'enableCleartextPlugin',
  'enableKeepAlive',
  'keepAliveInitialDelay',
  'stream',
] as const satisfies readonly (keyof PoolOptions)[];

function refused(what: string): LockConfigError {
  return new LockConfigError(`The connection of a MySQL lock backend is ${what}; ${REMEDY}`);
}

/** Gets a connection, which it releases, or why there is none. */
export type Use = (error: Error | null, connection?: PoolConnection) => void;

/** How a pool refuses a call while all connections are in use and its options let no call wait. */
const REFUSALS: ReadonlySet<string> = new Set(['No connections available.', 'Queue limit reached.']);

/**
 * The connections of the application's pool, or of one of our own. While all connections of the application's pool are
 * in use, statements take one spare connection of our own: code that holds a connection of the pool may wait for a
 * lock, and a lock must be renewed while a transaction runs.
 */
export class LentConnections {
  private readonly given: Pool | undefined;
  /** The spare connection, where a pool is given. */
  private readonly own: OwnPool;
  /** Whether a call of ours waits in the pool of the application, which shows that all its connections are in use. */
  private inLine = false;

  constructor({ pool, options }: GivenConnection) {
    this.given = pool;
    this.own = new OwnPool(pool ? { ...options, connectionLimit: 1 } : options);
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
      } else if (error && REFUSALS.has(error.message)) this.lendOwn(use);
      else use(error, connection);
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
export class OwnPool {
  private opened: Pool | undefined;
  private readonly connections = new Set<PoolConnection>();
  private readonly timeouts = new Timeouts();

  constructor(private readonly options: PoolOptions) {}

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
export function cutOff(connection: PoolConnection): void {
  connection.destroy();
  (connection as { stream?: { destroy(): void } }).stream?.destroy();
}

export function connectionLimit(pool: Pool): number {
  return pool.config.connectionLimit || Infinity;
}
