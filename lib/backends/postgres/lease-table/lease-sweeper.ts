import type { LeaseTable } from './lease-table.js';

/** How often (ms) each process looks, on average. */
const PERIOD = 5 * 60_000;
/** How many rows one statement deletes at most. */
const MOST = 20_000;

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
      PERIOD * (0.5 + Math.random()),
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
    for (let deleted = MOST; deleted === MOST && !this.stopped;) {
      const [count] = await this.table.row(this.table.statements.sweep, [this.idle, MOST]);
      deleted = Number(count);
    }
  }
}
