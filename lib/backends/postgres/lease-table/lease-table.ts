import { hash } from 'node:crypto';
import type { NameRequest } from '../../../contracts/lock-backend.js';
import { Migration } from '../connection/migration.js';
import type { PostgresLink, Reply, Row, Statement } from '../connection/postgres-link.js';
import { leaseStatements, type LeaseStatements, leaseTableSql } from './lease-statements.js';

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

/** How often (ms) each process looks, on average. */
const SWEEP_PERIOD = 5 * 60_000;
/** How many rows one statement deletes at most. */
const MOST_SWEPT = 20_000;

/** Deletes the rows of names that nobody has used for a while. */
export class LeaseSweeper {
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  /** Whether the operator knows that the last look failed. */
  private reported = false;

  /** `idle`: how long (ms) the row of an unused name stays. */
  constructor(
    private readonly table: LeaseTable,
    private readonly idle: number,
  ) {}

  /** From the first call on, looks at random times, so that processes do not all look at once. */
  start(): void {
    if (this.timer || this.stopped) return;
    this.timer = setTimeout(
      () => {
        this.timer = undefined;
        void this.look();
        this.start();
      },
      SWEEP_PERIOD * (0.5 + Math.random()),
    ).unref();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  /** Sweeps; the next look finds what this one could not delete. */
  async look(): Promise<void> {
    try {
      await this.sweep();
      this.reported = false;
    } catch (error) {
      if (this.reported || this.stopped) return;
      this.reported = true;
      const { link } = this.table;
      const { message } = link.diagnose(error);
      link.reporters.report({ level: 'warn', message: `${message}; the rows of unused names are not deleted` });
    }
  }

  private async sweep(): Promise<void> {
    for (let deleted = MOST_SWEPT; deleted === MOST_SWEPT && !this.stopped;) {
      const [count] = await this.table.row(this.table.statements.sweep, [this.idle, MOST_SWEPT]);
      deleted = Number(count);
    }
  }
}

/**
 * The key of a lock, as PostgreSQL reads a `bytea`: the SHA-256 of `:name`, or of `length:prefix:name` with a prefix.
 * PostgreSQL takes no NUL in text and indexes no value of more than 2.7 kB.
 */
export function lockKey({ prefix, name }: NameRequest): string {
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
export function labelPrefix({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return prefix === undefined ? '' : `${JSON.stringify(prefix)} `;
}

/** The key asked for last: the calls for one name often follow each other. */
let last: { readonly prefix: string | undefined; readonly name: string; readonly key: string } | undefined;

/** In hexadecimal digits: a string costs less than half of what a Buffer costs here. */
function digestOf(prefix: string | undefined, name: string): string {
  return hash('sha256', `${prefix === undefined ? '' : `${prefix.length}:${prefix}`}:${name}`, 'hex');
}
