import { hash } from 'node:crypto';
import { Sweeper } from '../../sweeper.js';
import { Migration } from '../connection/migration.js';
import type { PostgresLink, Row, Statement } from '../connection/postgres-link.js';
import { leaseStatements, type LeaseStatements, leaseTableSql } from './lease-statements.js';

/** The tables and functions of one schema. Creates them when a statement finds them missing. */
export class LeaseTable extends Migration {
  readonly statements: LeaseStatements;

  constructor(link: PostgresLink, schema: string, allowed: boolean) {
    super(link, { schema, sql: leaseTableSql(schema), allowed });
    this.statements = leaseStatements(schema);
  }

  /** The only row of the answer. */
  async row(statement: Statement, values: readonly unknown[]): Promise<Row> {
    const { rows } = await this.query(statement, values);
    return rows[0] as Row;
  }
}

/** The longest pause (ms) between two sweeps. */
const LONGEST_PAUSE = 400_000;
/** How many rows one statement deletes at most. */
const MOST_SWEPT = 20_000;

/** `idle`: how long (ms) the row of an unused name stays. */
export function leaseSweeper(table: LeaseTable, idle: number): Sweeper {
  return new Sweeper(table.link, LONGEST_PAUSE, async () => {
    const [deleted] = await table.row(table.statements.sweep, [idle, MOST_SWEPT]);
    return Number(deleted) === MOST_SWEPT;
  });
}

/**
 * The key of a lock, as PostgreSQL reads a `bytea`: the SHA-256 of `:name`, or of `length:prefix:name` with a prefix.
 * PostgreSQL takes no NUL in text and indexes no value of more than 2.7 kB.
 */
export function lockKey(prefix: string | undefined, name: string): string {
  if (last?.name !== name || last.prefix !== prefix) last = { prefix, name, key: `\\x${digestOf(prefix, name)}` };
  return last.key;
}

/**
 * In the order of the keys, which is that of PostgreSQL: statements that lock rows in one order never wait for each
 * other in a circle.
 */
export function inOrder<Keyed extends { readonly key: string }>(keyed: readonly Keyed[]): readonly Keyed[] {
  return keyed.toSorted((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

/** What precedes the id of a process in the table of labels. */
export function labelPrefix(prefix: string | undefined): string {
  return prefix === undefined ? '' : `${JSON.stringify(prefix)} `;
}

/** The key asked for last: the calls for one name often follow each other. */
let last: { readonly prefix: string | undefined; readonly name: string; readonly key: string } | undefined;

/** In hexadecimal digits: a string costs less than half of what a Buffer costs here. */
function digestOf(prefix: string | undefined, name: string): string {
  return hash('sha256', `${prefix === undefined ? '' : `${prefix.length}:${prefix}`}:${name}`, 'hex');
}
