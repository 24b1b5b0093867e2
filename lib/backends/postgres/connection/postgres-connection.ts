import pg from 'pg';
import type { Pool, PoolConfig } from 'pg';
import { LockConfigError } from '../../../errors/lock-errors.js';
import { lockOption } from '../../../options/option-checks.js';
import { ServerFailure, type Remedies } from '../../failures.js';

/**
 * A `Pool` of the application, which the backend uses and never closes; or the options or the URL from which the
 * backend makes a pool that it closes.
 */
export type PostgresConnection = Pool | PoolConfig | string;

/** @throws LockConfigError for a value that is not a connection */
export function requirePostgresConnection(
  option: string,
  connection: unknown,
): asserts connection is PostgresConnection {
  const isUrl = typeof connection === 'string' && URLS.test(connection);
  const isObject = typeof connection === 'object' && connection !== null && !Array.isArray(connection);
  const isClient = isObject && 'query' in connection && !isPool(connection);
  // pg passes over such an option, and would connect to its default server.
  const notOfPg = isObject && !isClient ? ['url', 'uri', 'connection'].find((name) => name in connection) : undefined;
  if (notOfPg) throw new LockConfigError(`Option "${option}" has "${notOfPg}"; give "connectionString"`);
  if (isObject && isPool(connection)) return requireText(option, connection.options);
  if (isObject && !isClient) lockOption.connection(option, connection, POOL_OPTIONS);
  const text = isObject ? (connection as PoolConfig).connectionString : undefined;
  // pg would take it for the name of a database.
  if (text && !isClient && !URLS.test(text) && !text.startsWith('/'))
    throw lockOption.refusedConnection(`${option}.connectionString`, text, 'a postgres:// URL');
  if (isUrl) lockOption.requireWholePassword(option, connection);
  if (isUrl || (isObject && !isClient)) {
    // A client that is never connected.
    return requireText(
      option,
      lockOption.readBy(option, () => new pg.Client(connection)),
    );
  }
  const remedy = 'a Pool of pg, options for one, or a postgres:// URL';
  if (isClient) throw lockOption.refused(option, 'a single Client', remedy);
  throw lockOption.refusedConnection(option, connection, remedy);
}

const URLS = /^postgres(ql)?:\/\/|^socket:/;

/** pg reads the arrays of a reply in text alone. @throws LockConfigError for connections whose replies are binary */
function requireText(option: string, options: object = {}): void {
  const binary = (Reflect.get(options, 'binary') as unknown) ?? pg.defaults.binary;
  if (!binary) return;
  throw lockOption.refused(`${option}.binary`, binary, 'connections without it: pg reads no list in a binary reply');
}

/** The options of a Pool, and of its connections, that pg 8 reads. */
const POOL_OPTIONS = [
  'connectionString',
  'host',
  'port',
  'user',
  'password',
  'database',
  'ssl',
  'sslmode',
  'sslnegotiation',
  'enableChannelBinding',
  'scramMaxIterations',
  'application_name',
  'fallback_application_name',
  'options',
  'replication',
  'client_encoding',
  'statement_timeout',
  'lock_timeout',
  'idle_in_transaction_session_timeout',
  'query_timeout',
  'connectionTimeoutMillis',
  'connect_timeout',
  'keepAlive',
  'keepAliveInitialDelayMillis',
  'keepalives',
  'keepalives_idle',
  'stream',
  'types',
  'binary',
  'pipeline',
  'parseInputDatesAsUTC',
  'max',
  'poolSize',
  'min',
  'idleTimeoutMillis',
  'allowExitOnIdle',
  'maxUses',
  'maxLifetimeSeconds',
  'log',
  'onConnect',
  'verify',
  'Client',
  'Promise',
];

/** Also for the pool of another copy of `pg`. */
export function isPool(connection: object | string): connection is Pool {
  return typeof connection === 'object' && 'totalCount' in connection && 'connect' in connection;
}

/** The options of another connection to the same server. */
export function optionsOf(connection: PostgresConnection): PoolConfig {
  if (typeof connection === 'string') return { connectionString: connection };
  if (!isPool(connection)) return connection;
  // A pool keeps the password in a property that is not enumerable.
  const { options } = connection;
  return { ...options, ...(options.password !== undefined && { password: options.password }) };
}

/** A right that is missing, and a table that has other columns. */
const LASTING: ReadonlySet<string | undefined> = new Set(['42501', '42703']);

/** Why a call to PostgreSQL failed: names the server, the cause and the remedy. */
export class PostgresFailure extends ServerFailure {
  override readonly name = 'PostgresFailure';
  override readonly lasts: boolean = LASTING.has(this.code);
}

/** What only an operator mends: the server lacks a table, its version is too old, or the user lacks a right. */
export class PostgresRefusal extends PostgresFailure {
  override readonly lasts = true;
}

export const REMEDIES: Remedies = [
  [/ECONNREFUSED/, 'nothing listens there: start PostgreSQL, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/ENOENT/, 'the socket does not exist: start PostgreSQL, or correct the path'],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|timeout expired/, 'nothing answers there: check host, port and firewall'],
  [/does not support SSL/, 'it does not speak TLS: leave "ssl" out, or enable ssl at the server'],
  [/CERT|SELF_SIGNED|UNABLE_TO_/, 'its certificate is not trusted: give its authority as ssl: { ca }'],
  [/^28/, 'correct user and password, or allow them in pg_hba.conf'],
  [/^3D000/, 'create the database, or correct its name'],
  [/^53300/, 'it has no connection left: raise max_connections, or give the pools fewer'],
  [/^53|^58/, 'its memory or disk is full: see its log'],
  [/^57P03/, 'it is starting or stopping: wait'],
  [/^57P0|Connection terminated|ECONNRESET|EPIPE/, 'the connection was closed: see the log of the server'],
  [/^25006/, 'it is a standby or read-only: give the address of the primary'],
  [/^40001/, "the connection runs serializable transactions: set default_transaction_isolation to 'read committed'"],
  [/^42501/, 'grant the rights that docs/guide/postgres.md lists'],
  [/^42P01|^3F000|^42883/, 'create the tables and functions with docs/postgres.sql'],
  [/Query read timeout/, 'it does not answer: is it busy or paused?'],
];
