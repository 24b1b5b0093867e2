import { messageOf } from '../../../errors/limited-log.js';
import { instance, type Check } from '../../../options/checks.js';
import { codeOf } from '../../failures.js';
import { PostgresFailure, PostgresRefusal } from './postgres-connection.js';
import type { PostgresLink, Reply, Statement } from './postgres-link.js';

/** What a backend needs in its schema, and whether it may create it. */
interface MigrationSettings {
  readonly schema: string;
  readonly sql: string;
  readonly allowed: boolean;
}

/** A schema, a table or a function that does not exist. */
const MISSING = new Set(['3F000', '42P01', '42883']);

/** Creates tables, functions and sequences where a statement finds them missing, unless the options forbid it. */
export class Migration {
  private running: Promise<void> | undefined;

  constructor(
    readonly link: PostgresLink,
    private readonly settings: MigrationSettings,
  ) {}

  /** Runs the statement; where something is missing for it, creates that and runs the statement again. */
  query(statement: Statement, values: readonly unknown[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.ask(statement, values, resolve, reject);
    });
  }

  /** As `query`, with callbacks. */
  ask(
    statement: Statement,
    values: readonly unknown[],
    answered: (reply: Reply) => void,
    failed: (error: unknown) => void,
  ): void {
    const again = () => this.link.ask(statement, values, answered, failed);
    this.link.ask(statement, values, answered, (error) => {
      if (MISSING.has(codeOf(error) ?? '')) this.runBefore(again, failed);
      else failed(error);
    });
  }

  /** @throws PostgresFailure when it must not create them */
  run(): Promise<void> {
    return (this.running ??= this.create().finally(() => (this.running = undefined)));
  }

  private runBefore(statement: () => void, failed: (error: unknown) => void): void {
    this.run().then(statement, failed);
  }

  private async create(): Promise<void> {
    const { schema, sql, allowed } = this.settings;
    const missing = `${this.link.server}: schema "${schema}" lacks what the locks need`;
    if (!allowed) throw new PostgresRefusal(`${missing}, and "migrate" is false; run docs/postgres.sql`);
    try {
      await this.link.run(`SELECT pg_advisory_xact_lock(hashtextextended('nest_redis_lock migration', 0));\n${sql}`);
    } catch (error) {
      if (codeOf(error) !== '42501') throw error;
      const why = messageOf(error);
      const remedy = 'run docs/postgres.sql as a user that may, or grant it CREATE on the database';
      throw new PostgresFailure(`${missing}, and the user may not create it (${why}); ${remedy}`, error);
    }
  }
}

/** A name that needs no quotes, and leaves room for what statements append. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,39}$/;

export const schemaName: Check<string> = instance(
  (value): value is string => typeof value === 'string' && SCHEMA.test(value),
  'a name of at most 40 lower-case letters, digits and underscores',
);
