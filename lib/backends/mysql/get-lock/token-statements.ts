import type { TableStatements } from '../rows/lock-table.js';
import { bytes, NOW, oneOf, reserve, unusedFor } from '../rows/sql.js';

/**
 * The statements on the table of fencing tokens: for each name one row, which the session that has the lock changes.
 */
export class TokenStatements implements TableStatements {
  constructor(private readonly table: string) {}

  create(): string {
    return `CREATE TABLE IF NOT EXISTS ${this.table} (
  id BINARY(32) NOT NULL PRIMARY KEY,
  owner VARBINARY(255) NOT NULL,
  token BIGINT NOT NULL,
  used_at DATETIME(6) NOT NULL
) ENGINE = InnoDB`;
  }

  /** Writes the new owner and reserves tokens for it; `insertId` is the first one. */
  grant(id: string, ticket: string): string {
    return this.upsert(id, bytes(ticket), `owner = ${bytes(ticket)},`, 0);
  }

  /** Reserves further tokens for the owner. */
  issue(id: string, leastToken: number): string {
    return this.upsert(id, "''", '', leastToken);
  }

  last(id: string): string {
    return `SELECT owner, token FROM ${this.table} WHERE id = x'${id}'`;
  }

  private upsert(id: string, owner: string, assignment: string, leastToken: number): string {
    return `INSERT INTO ${this.table} (id, owner, token, used_at)
VALUES (x'${id}', ${owner}, ${reserve('0', leastToken, '0')}, ${NOW})
ON DUPLICATE KEY UPDATE ${assignment} token = ${reserve('token', leastToken, '0')}, used_at = ${NOW}`;
  }

  unused(age: number, most: number): string {
    // The row of a lock that a session has stays, however long it has it.
    return `SELECT HEX(id) AS id FROM ${this.table}
WHERE ${unusedFor(age, 'used_at')} AND IS_USED_LOCK(LOWER(HEX(id))) IS NULL LIMIT ${most}`;
  }

  delete(ids: readonly string[], age: number): string {
    return `DELETE FROM ${this.table} WHERE ${oneOf(ids)} AND ${unusedFor(age, 'used_at')}`;
  }
}
