import type { ResultSetHeader } from 'mysql2';
import type { StartRequest } from '../../contracts/store.js';
import { codeOf, type MysqlLink, type Statement } from './mysql-link.js';
import { createHash } from 'node:crypto';

/** The statements that every table needs. */
export interface TableStatements {
  create(): string;
  /** The keys of at most `most` rows that nobody uses or has used for `age` ms. A plain read: it locks no row. */
  unused(age: number, most: number): string;
  delete(ids: readonly string[], age: number): string;
}

export interface LockTableSettings {
  /** Quoted. */
  readonly table: string;
  readonly createTable: boolean;
  /** Milliseconds that an unused row stays. */
  readonly keepRows: number;
}

/** How many unused rows are deleted at once. */
const SWEPT_AT_ONCE = 500;
/** The longest pause (ms) between two sweeps. */
const LONGEST_PAUSE = 600_000;

/** The table of one backend: made at its first use, and swept of rows that nobody uses. */
export class LockTable<Statements extends TableStatements> {
  private creating: Promise<void> | undefined;
  private readonly sendByPool = (statement: Statement) => this.link.change(statement);
  private timer: NodeJS.Timeout | undefined;
  /** Whether the last sweep failed, which was reported. */
  private failed = false;

  constructor(
    private readonly link: MysqlLink,
    readonly statements: Statements,
    private readonly settings: Omit<LockTableSettings, 'table'>,
  ) {}

  /** Runs a statement that changes rows, on any connection or by `send`; makes the table first where it is missing. */
  async change<Sent extends Statement>(
    statement: Sent,
    send: (statement: Sent) => Promise<ResultSetHeader> = this.sendByPool,
  ): Promise<ResultSetHeader> {
    try {
      return await send(statement);
    } catch (error) {
      if (codeOf(error) !== 'ER_NO_SUCH_TABLE' || !this.settings.createTable) throw error;
      await this.create();
      return send(statement);
    }
  }

  /** The rows of a query; none where the table is missing. */
  async rows<Row>(sql: string): Promise<readonly Row[]> {
    try {
      return await this.link.rows<Row>(sql);
    } catch (error) {
      if (codeOf(error) !== 'ER_NO_SUCH_TABLE' || !this.settings.createTable) throw error;
      return [];
    }
  }

  /** Fails where the user may not delete rows: the sweeps would fail later, unseen. */
  async start(request: StartRequest, id: string): Promise<void> {
    this.link.reporters.add(request);
    await this.change(this.statements.delete([id], this.settings.keepRows));
  }

  /** Deletes unused rows from now on, from time to time. */
  startSweeping(): void {
    this.timer ??= setInterval(
      () => void this.sweepOrReport(),
      // Not in step with the other processes.
      Math.min(this.settings.keepRows, LONGEST_PAUSE) * (0.5 + Math.random() / 2),
    ).unref();
  }

  stopSweeping(): void {
    clearInterval(this.timer);
  }

  private async create(): Promise<void> {
    this.creating ??= this.link.change(this.statements.create()).then(() => {});
    try {
      await this.creating;
    } finally {
      this.creating = undefined;
    }
  }

  private async sweepOrReport(): Promise<void> {
    try {
      await this.sweep();
      this.failed = false;
    } catch (error) {
      if (this.failed) return;
      this.failed = true;
      const { message } = this.link.diagnose(error);
      this.link.reporters.report({ level: 'warn', message: `${message}. Until then, rows of unused names stay` });
    }
  }

  private async sweep(): Promise<void> {
    const { statements, settings } = this;
    for (;;) {
      const unused = await this.rows<{ id: string }>(statements.unused(settings.keepRows, SWEPT_AT_ONCE));
      if (unused.length > 0) {
        await this.link.change(
          statements.delete(
            unused.map(({ id }) => id),
            settings.keepRows,
          ),
        );
      }
      if (unused.length < SWEPT_AT_ONCE) return;
    }
  }
}

/** A row, and the ticket that owns it or is to own it. */
export interface RowTicket {
  /** 64 hexadecimal digits. */
  readonly id: string;
  readonly ticket: string;
}

/**
 * The key of a name's row: 64 lower-case hexadecimal digits. Names differ in case, length and trailing blanks, all of
 * which a text column or `GET_LOCK` could ignore or refuse.
 */
export function rowIdOf(prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name]);
}

/**
 * The name for `GET_LOCK`, which is also the key of the row of its tokens. The server has one space of names for all of
 * its databases: those of another one, such as a copy for tests, must not exclude these.
 */
export function getLockNameOf(database: string, prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name, database]);
}

/** The key of the row that keeps the label of a process. */
export function labelIdOf(prefix: string | undefined, process: string): string {
  return hashOf(['label', prefix ?? null, process]);
}

function hashOf(parts: readonly (string | null)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
