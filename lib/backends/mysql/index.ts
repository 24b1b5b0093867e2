export type { MysqlConnection } from './connection/given-connection.js';
export { getLock, leaseTable, mysql } from './mysql.js';
export type { MysqlOptions } from './mysql.js';
export type { GetLockOptions, LeaseTableOptions } from './table-options.js';
