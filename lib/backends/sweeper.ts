import type { Listeners } from './listeners.js';

/** Where rows are deleted. */
interface SweptServer {
  readonly listeners: Listeners;
  diagnose(error: unknown): Error;
}

/** Deletes the rows of names that nobody has used for a while. */
export class Sweeper {
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;
  /** Whether the operator knows that the last sweep failed. */
  private reported = false;

  constructor(
    private readonly server: SweptServer,
    /** The longest pause (ms) between two sweeps. */
    private readonly pause: number,
    /** Deletes rows; answers whether there may be more. */
    private readonly deleteSome: () => Promise<boolean>,
  ) {}

  /** From the first call on, sweeps from time to time, not in step with the other processes. */
  start(): void {
    if (this.timer || this.stopped) return;
    this.timer = setTimeout(
      () => {
        this.timer = undefined;
        void this.sweep();
        this.start();
      },
      this.pause * (0.5 + Math.random() / 2),
    ).unref();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  /** The next sweep finds what this one could not delete. */
  async sweep(): Promise<void> {
    try {
      while (!this.stopped && (await this.deleteSome()));
      this.reported = false;
    } catch (error) {
      if (this.reported || this.stopped) return;
      this.reported = true;
      const { message } = this.server.diagnose(error);
      this.server.listeners.report({ level: 'warn', message: `${message}; the rows of unused names are not deleted` });
    }
  }
}
