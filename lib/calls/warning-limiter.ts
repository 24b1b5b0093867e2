import type { LoggerService } from '@nestjs/common';

/** Milliseconds after a logged warning in which further warnings of its kind are counted instead of logged. */
const QUIET_PERIOD = 10_000;

interface QuietPeriod {
  /** On the monotonic clock. */
  readonly until: number;
  withheld: number;
}

/**
 * Logs at most one warning of each kind in ten seconds, for failures that can occur thousands of times a second. The
 * text before the first quotation mark is the kind: a warning about one key does not withhold one about the server.
 */
export class WarningLimiter {
  private readonly quietPeriods = new Map<string, QuietPeriod>();

  constructor(private readonly logger: Pick<LoggerService, 'warn'>) {}

  warn(message: string): void {
    const [kind = ''] = message.split('"', 1);
    const quiet = this.quietPeriods.get(kind);
    if (quiet && performance.now() < quiet.until) {
      quiet.withheld += 1;
      return;
    }
    this.quietPeriods.set(kind, { until: performance.now() + QUIET_PERIOD, withheld: 0 });
    this.logger.warn(quiet?.withheld ? `${message} (and ${quiet.withheld} similar warnings)` : message);
  }
}
