import { Migration } from '../connection/migration.js';
import type { PostgresLink, Reply, Row } from '../connection/postgres-link.js';
import type { Statement } from '../connection/statement.js';
import { leaseStatements, type LeaseStatements } from './sql/lease-statements.js';
import { leaseTableSql } from './sql/lease-table.sql.js';

/** The tables and functions of one schema. Creates them when a statement finds them missing. */
export class LeaseTable {
  readonly statements: LeaseStatements;
  readonly migration: Migration;

  constructor(
    readonly link: PostgresLink,
    schema: string,
    allowed: boolean,
  ) {
    this.statements = leaseStatements(schema);
    this.migration = new Migration(link, { schema, sql: leaseTableSql(schema), allowed });
  }

  query(statement: Statement, values: readonly unknown[]): Promise<Reply> {
    return this.migration.query(statement, values);
  }

  /** As `query`, with callbacks. */
  ask(
    statement: Statement,
    values: readonly unknown[],
    answered: (reply: Reply) => void,
    failed: (error: unknown) => void,
  ): void {
    this.migration.ask(statement, values, answered, failed);
  }

  /** The only row of the answer. */
  async row(statement: Statement, values: readonly unknown[]): Promise<Row> {
    const { rows } = await this.query(statement, values);
    return rows[0] as Row;
  }
}
