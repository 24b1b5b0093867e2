import type { LoggerService } from '@nestjs/common';

/** How long (ms) after a line the next ones of its kind are counted rather than written. */
const QUIET = 10_000;

interface Quiet {
  /** On the monotonic clock. */
  readonly until: number;
  withheld: number;
}

/**
 * Warnings of what may happen thousands of times a second: one line of each kind now and then. What stands before the
 * first quotation mark is the kind, so that a key which cannot be read does not hide that Redis is away.
 */
export class Complaints {
  private readonly quiet = new Map<string, Quiet>();

  constructor(private readonly logger: Pick<LoggerService, 'warn'>) {}

  warn(message: string): void {
    const [kind = ''] = message.split('"', 1);
    const quiet = this.quiet.get(kind);
    if (quiet && performance.now() < quiet.until) {
      quiet.withheld += 1;
      return;
    }
    this.quiet.set(kind, { until: performance.now() + QUIET, withheld: 0 });
    this.logger.warn(quiet?.withheld ? `${message} (and ${quiet.withheld} such warnings more)` : message);
  }
}
