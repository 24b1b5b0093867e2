import type { LockBackend } from '../../contracts/lock-backend.js';
import { lockOption } from '../../options/option-checks.js';
import { getLock } from './get-lock-backend.js';
import { leaseTable } from './lease-table-backend.js';
import type { MysqlConnection } from './mysql-connection.js';
import type { GetLockOptions, LeaseTableOptions } from './mysql-options.js';

export { getLock } from './get-lock-backend.js';
export { leaseTable } from './lease-table-backend.js';
export type { MysqlConnection } from './mysql-connection.js';
export type { GetLockOptions, LeaseTableOptions } from './mysql-options.js';

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
