import { createConnection, type Connection, type Pool, type PoolOptions } from 'mysql2';
import type { Pool as PromisePool } from 'mysql2/promise';
import { LockConfigError } from '../../../errors/lock-errors.js';

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
