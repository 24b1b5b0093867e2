export { advisory, type AdvisoryOptions } from './advisory/advisory-backend.js';
export type { PostgresConnection } from './connection/postgres-connection.js';
export { leaseTable } from './lease-table/lease-table-backend.js';
export type { LeaseTableOptions } from './lease-table/lease-table-options.js';
export { postgres, type PostgresOptions } from './postgres.js';
export { lockInTransaction, type TransactionLockOptions } from './transaction/lock-in-transaction.js';
