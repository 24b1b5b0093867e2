import { createConnection, createPool, type Connection, type Pool, type PoolOptions } from 'mysql2';
import type { Pool as PromisePool } from 'mysql2/promise';
import { LockConfigError } from '../../errors/lock-errors.js';
import { lockOption, shownConnection } from '../../options/option-checks.js';
import { codeOf, ServerFailure, type Remedies } from '../failures.js';

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

/**
 * @throws LockConfigError for what is neither URL, options nor a pool; without showing it, as it may hold a password
 */
export function readConnection(connection: unknown): GivenConnection {
  if (typeof connection === 'string') {
    if (!URL.canParse(connection)) throw refused('text that is not a URL');
    // mysql2 takes any URL, and would greet the server of another store.
    const { protocol } = new URL(connection);
    if (!PROTOCOLS.includes(protocol)) throw refused(shownConnection(connection));
    requireHost(connection);
    return { pool: undefined, options: readable({ uri: connection }) };
  }
  if (typeof connection !== 'object' || connection === null) throw refused(String(connection));
  if (Array.isArray(connection)) throw refused('a list');
  const pool = 'pool' in connection ? connection.pool : connection;
  if (isPool(pool)) return { pool, options: optionsOf(pool) };
  if ('getConnection' in connection || 'query' in connection) throw refused('a client that is no pool');
  // mysql2 passes over such an option, and would connect to its default server.
  const notOfMysql = ['url', 'connectionString', 'connection'].find((name) => name in connection);
  if (notOfMysql) throw refused(`options with "${notOfMysql}", which mysql2 calls "uri"`);
  lockOption.connection('connection', connection, KNOWN_OPTIONS);
  const { uri, host, socketPath } = connection as PoolOptions;
  if (uri !== undefined && host === undefined && socketPath === undefined) requireHost(uri);
  return { pool: undefined, options: readable(connection) };
}

/** mysql2 would take "mysql:/user:password@host" for the name of a database on localhost. */
function requireHost(url: string): void {
  if (!URL.canParse(url)) throw refused('a URL that cannot be read');
  const { hostname, searchParams } = new URL(url);
  if (hostname === '' && !searchParams.has('socketPath')) throw refused('a URL without a host');
  lockOption.requireWholePassword('connection', url);
}

/** mysql2 reads its options where it makes a pool, which opens no connection yet. */
function readable(options: PoolOptions): PoolOptions {
  lockOption.readBy('connection', () => createPool(options)).end();
  return options;
}

/** Opens one connection, outside of every pool. */
export function openConnection(options: PoolOptions): Connection {
  const own = { ...options };
  for (const name of POOL_OPTIONS) delete own[name];
  return createConnection(own);
}

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

/** A right or the table is missing, or the table has other columns. */
const LASTING = /^ER_(?:DB|TABLE|COLUMN|PROC|SPECIFIC_)ACCESS_DENIED|^ER_(?:NO_SUCH_TABLE|BAD_FIELD_ERROR)$/;

/** Why a call to MySQL or MariaDB failed: names the server, the cause and the remedy. */
export class MysqlFailure extends ServerFailure {
  override readonly name = 'MysqlFailure';
  override readonly lasts = LASTING.test(this.code ?? '');
}

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

const REMEDY = "give a URL such as 'mysql://user:password@host:3306/database', pool options, or a pool of mysql2";

/** The options that only a pool has. */
const POOL_OPTIONS = [
  'waitForConnections',
  'connectionLimit',
  'maxIdle',
  'idleTimeout',
  'queueLimit',
  'resetOnRelease',
] as const satisfies readonly (keyof PoolOptions)[];

/** The options by which a connection of our own reaches the server of a pool. */
const SERVER_OPTIONS = [
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

/** The options that mysql2 3 reads; it would pass over others. */
const KNOWN_OPTIONS = [
  'uri',
  ...SERVER_OPTIONS,
  ...POOL_OPTIONS,
  'password1',
  'authSwitchHandler',
  'bigNumberStrings',
  'charset',
  'charsetNumber',
  'compress',
  'connectAttributes',
  'dateStrings',
  'debug',
  'decimalNumbers',
  'disableEval',
  'flags',
  'gracefulEnd',
  'infileStreamFactory',
  'insecureAuth',
  'jsonStrings',
  'maxPreparedStatements',
  'multipleStatements',
  'namedPlaceholders',
  'nestTables',
  'Promise',
  'queryFormat',
  'rowsAsArray',
  'stringifyObjects',
  'supportBigNumbers',
  'timezone',
  'trace',
  'typeCast',
];

/** Errors of one row, for which the server refuses a statement on several. */
const OF_ONE_ROW: ReadonlySet<string | undefined> = new Set([
  'ER_LOCK_DEADLOCK',
  'ER_LOCK_WAIT_TIMEOUT',
  'ER_DATA_TOO_LONG',
]);

export const REMEDIES: Remedies = [
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

function isPool(value: unknown): value is Pool {
  if (typeof value !== 'object' || value === null) return false;
  const { getConnection, config } = value as { getConnection?: unknown; config?: { connectionConfig?: unknown } };
  return typeof getConnection === 'function' && config?.connectionConfig !== undefined;
}

function connectionConfig(pool: Pool): PoolOptions {
  // The types of mysql2 say that `config` has the options themselves; it has had them one level below since 1.0.
  return (pool.config as { connectionConfig?: PoolOptions }).connectionConfig ?? pool.config;
}

function optionsOf(pool: Pool): PoolOptions {
  const config = connectionConfig(pool);
  const options: Record<string, unknown> = {};
  for (const name of SERVER_OPTIONS) if (config[name] !== undefined) options[name] = config[name];
  return options;
}

function refused(what: string): LockConfigError {
  return new LockConfigError(`The connection of a MySQL lock backend is ${what}; ${REMEDY}`);
}

// What a server answers.

/**
 * How a statement asks for its rows: as the bytes that the server sent. By the options of an application, numbers come
 * as text or as BigInt, and its `typeCast` may give text for bytes. Only a function of the statement precedes that one.
 */
export const ROWS = {
  typeCast: (column: { buffer(): Buffer | null }) => column.buffer(),
  rowsAsArray: false,
  nestTables: false,
};

/** Reads the bytes of a column; `null` is what the database calls NULL. */
type Read<Value> = (bytes: Buffer | null) => Value;

/** A statement that answers rows, and how their columns are read. */
export interface Query<Row> {
  readonly sql: string;
  readonly columns: { readonly [Name in keyof Row]: Read<Row[Name]> };
}

/** What the server answers to a statement that changes rows. */
export interface Header {
  readonly affectedRows: number;
  readonly insertId: number;
}

export const text: Read<string> = (bytes) => present(bytes).toString();

export const hex: Read<string> = (bytes) => present(bytes).toString('hex');

export const number: Read<number> = (bytes) => numberOf(text(bytes));

export function orNull<Value>(read: Read<Value>): Read<Value | null> {
  return (bytes) => (bytes === null ? null : read(bytes));
}

/** @throws Error for an answer that it cannot read: a lock counts as nobody's only where the server says so */
export function readRows<Row>(answer: unknown, columns: Query<Row>['columns']): readonly Row[] {
  if (!Array.isArray(answer)) throw new Error('the server answered no rows to a query');
  const reads = Object.entries<Read<unknown>>(columns);
  return answer.map(
    (row: Readonly<Record<string, unknown>> | null | undefined) =>
      Object.fromEntries(reads.map(([name, read]) => [name, readColumn(row?.[name], name, read)])) as Row,
  );
}

/** @throws Error for an answer that it cannot read */
export function readHeader(answer: unknown): Header {
  const { affectedRows, insertId } = (answer ?? {}) as Partial<Record<keyof Header, unknown>>;
  // Of a connection with `bigNumberStrings`, large ones are text.
  return { affectedRows: numberOf(affectedRows), insertId: numberOf(insertId) };
}

/** Server status: the connection is inside a transaction. */
const IN_TRANSACTION = 1;

/** A lock that was taken inside a transaction of the application would end with its rollback, and a read may be old. */
export function foreignTransaction(header: unknown): Error | undefined {
  const { serverStatus } = (header ?? {}) as { serverStatus?: unknown };
  if (typeof serverStatus !== 'number') {
    return new Error('the driver does not tell whether the connection is inside a transaction');
  }
  if ((serverStatus & IN_TRANSACTION) === 0) return undefined;
  return new Error(
    'a connection of the pool is inside a transaction; commit before you release a connection, and leave autocommit on',
  );
}

function readColumn(value: unknown, name: string, read: Read<unknown>): unknown {
  try {
    if (value === null || Buffer.isBuffer(value)) return read(value);
  } catch (error) {
    throw new Error(`the server answered "${name}" with ${(error as Error).message}`, { cause: error });
  }
  throw new Error(`the driver gave "${name}" as ${typeof value}, and not as the bytes that were asked for`);
}

function present(bytes: Buffer | null): Buffer {
  if (bytes === null) throw new Error('NULL');
  return bytes;
}

function numberOf(value: unknown): number {
  const read = typeof value === 'string' && value.trim() === '' ? NaN : Number(value ?? NaN);
  if (!Number.isFinite(read)) throw new Error(`"${String(value)}", which is no number`);
  return read;
}
