import type { LoggerService } from '@nestjs/common';

/** How long (ms) after a line the next ones are counted rather than written. */
const QUIET = 10_000;

/** Warnings of what may happen thousands of times a second: one line now and then. */
export class Complaints {
  private quietUntil = 0;
  private withheld = 0;

  constructor(private readonly logger: Pick<LoggerService, 'warn'>) {}

  warn(message: string): void {
    if (performance.now() < this.quietUntil) {
      this.withheld += 1;
      return;
    }
    this.quietUntil = performance.now() + QUIET;
    this.logger.warn(this.withheld > 0 ? `${message} (and ${this.withheld} warnings more)` : message);
    this.withheld = 0;
  }
}
