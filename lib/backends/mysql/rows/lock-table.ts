import type { ResultSetHeader } from 'mysql2';
import type { StartRequest } from '../../../contracts/start-request.js';
import { codeOf } from '../connection/diagnosis.js';
import type { MysqlLink } from '../connection/mysql-link.js';
import type { Statement } from '../connection/prepared-statements.js';

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
