import type { Pool, PoolConfig } from 'pg';
import { LockConfigError } from '../../../errors/lock-errors.js';
import { lockOption } from '../../../options/option-checks.js';

/**
 * A `Pool` of the application, which the backend uses and never closes; or the options or the URL from which the
 * backend makes a pool that it closes.
 */
export type PostgresConnection = Pool | PoolConfig | string;

/** Also for the pool of another copy of `pg`. */
export function isPool(connection: object | string): connection is Pool {
  return typeof connection === 'object' && 'totalCount' in connection && 'connect' in connection;
}

/** @throws LockConfigError for a value that is not a connection */
export function requirePostgresConnection(
  option: string,
  connection: unknown,
): asserts connection is PostgresConnection {
  const isUrl = typeof connection === 'string' && /^postgres(ql)?:\/\/|^socket:/.test(connection);
  const isObject = typeof connection === 'object' && connection !== null && !Array.isArray(connection);
  const isClient = isObject && 'query' in connection && !isPool(connection);
  // pg passes over such an option, and would connect to its default server.
  const notOfPg = isObject ? ['url', 'uri'].find((name) => name in connection) : undefined;
  if (notOfPg) throw new LockConfigError(`Option "${option}" has "${notOfPg}"; give "connectionString"`);
  if (isUrl || (isObject && !isClient)) return;
  const remedy = 'a Pool of pg, options for one, or a postgres:// URL';
  // A URL may contain a password.
  const shown = isClient ? 'a single Client' : typeof connection === 'string' ? '...' : connection;
  throw lockOption.refused(option, shown, remedy);
}

/** The options of another connection to the same server. */
export function optionsOf(connection: PostgresConnection): PoolConfig {
  if (typeof connection === 'string') return { connectionString: connection };
  if (!isPool(connection)) return connection;
  // A pool keeps the password in a property that is not enumerable.
  const { options } = connection;
  return { ...options, ...(options.password !== undefined && { password: options.password }) };
}
