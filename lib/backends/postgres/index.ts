import type { LockBackend } from '../../contracts/lock-backend.js';
import { lockOption } from '../../options/option-checks.js';
import { advisory, type AdvisoryOptions } from './advisory/advisory-backend.js';
import type { PostgresConnection } from './connection/postgres-connection.js';
import { leaseTable, type LeaseTableOptions } from './lease-table/lease-table-backend.js';

export { advisory, type AdvisoryOptions } from './advisory/advisory-backend.js';
export type { PostgresConnection } from './connection/postgres-connection.js';
export { leaseTable, type LeaseTableOptions } from './lease-table/lease-table-backend.js';
export { lockInTransaction, type TransactionLockOptions } from './lock-in-transaction.js';

/** The options of `postgres()`: those of the kind that it names. */
export type PostgresOptions =
  | ({
      /** Rows with leases, or advisory locks. @default 'leaseTable' */
      kind?: 'leaseTable';
    } & LeaseTableOptions)
  | ({ kind: 'advisory' } & AdvisoryOptions);

/** Locks on PostgreSQL: `leaseTable(connection, options)`, or `advisory(connection, options)` with that `kind`. */
export function postgres(connection: PostgresConnection, options: PostgresOptions = {}): LockBackend {
  const { kind, ...rest }: PostgresOptions = lockOption.object('options', options, 'an object of options');
  if (kind === 'advisory') return advisory(connection, rest);
  if (kind === undefined || kind === 'leaseTable') return leaseTable(connection, rest);
  throw lockOption.refused('kind', kind, "'leaseTable' or 'advisory'");
}
