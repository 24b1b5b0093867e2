import type { LockBackend } from '../../contracts/lock-backend.js';
import { lockOption } from '../../options/option-checks.js';
import type { MysqlConnection } from './connections.js';
import { MysqlLink } from './mysql-link.js';
import { GetLockBackend } from './get-lock.js';
import { LeaseTableBackend } from './lease-table-backend.js';
import { GET_LOCK_OPTIONS, LEASE_TABLE_OPTIONS, type GetLockOptions, type LeaseTableOptions } from './table-options.js';

export type { MysqlConnection } from './connections.js';
export type { GetLockOptions, LeaseTableOptions } from './table-options.js';

/** The options of `mysql()`: those of the kind that it names. */
export type MysqlOptions =
  | ({
      /** Rows with leases, or locks of `GET_LOCK`. Default `'leaseTable'`. */
      readonly kind?: 'leaseTable';
    } & LeaseTableOptions)
  | ({ readonly kind: 'getLock' } & GetLockOptions);

/** Locks on MySQL or MariaDB: `leaseTable(connection, options)`, or `getLock(connection, options)` with that `kind`. */
export function mysql(connection: MysqlConnection, options: MysqlOptions = {}): LockBackend {
  const { kind, ...rest }: MysqlOptions = lockOption.object('options', options, 'an object of options');
  if (kind === 'getLock') return getLock(connection, rest);
  if (kind === undefined || kind === 'leaseTable') return leaseTable(connection, rest);
  throw lockOption.refused('kind', kind, "'leaseTable' or 'getLock'");
}

/**
 * Keeps locks in a table of MySQL or MariaDB: a row for each name, with a lease that ends by the clock of the server.
 *
 * @param connection a pool of the application, which stays open; or what a pool of the backend's own is opened with
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function leaseTable(connection: MysqlConnection, options: LeaseTableOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of leaseTable()');
  return new LeaseTableBackend(new MysqlLink(connection), LEASE_TABLE_OPTIONS.settings(given));
}

/**
 * Locks of `GET_LOCK`: they end with the session that took them, at once when its process dies. The sessions are
 * connections of the backend's own, also where a pool is passed in.
 *
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function getLock(connection: MysqlConnection, options: GetLockOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of getLock()');
  return new GetLockBackend(new MysqlLink(connection), GET_LOCK_OPTIONS.settings(given));
}
