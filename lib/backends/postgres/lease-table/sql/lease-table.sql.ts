import { ownerSql } from './owner.sql.js';
import { queueSql } from './queue.sql.js';
import { tablesSql } from './tables.sql.js';
import { waiterSql } from './waiter.sql.js';

/** The function that a migration creates last: where it exists, all others do. */
export const LAST_FUNCTION = 'sweep_v1';

/**
 * Creates what the lease table needs, or only what is missing. The functions carry a version, so that two versions of
 * this package can work on the same locks. PostgreSQL runs a text of several statements in one transaction.
 */
export function leaseTableSql(schema: string): string {
  return `${tablesSql(schema)}${queueSql(schema)}${waiterSql(schema)}${ownerSql(schema)}`;
}
