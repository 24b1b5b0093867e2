import type { LockFailed, LockLost } from '../../events/lock-channels.js';
import { Distribution } from './distribution.js';
import { Series, zeros } from './series.js';

/** The numbers of the locks of one template at one backend. */
export class LockSeries extends Series<LockCounts> {
  /** Holds that have begun and not ended. */
  held = 0;
  /** Calls that have begun and are neither admitted nor refused. */
  waiting = 0;

  constructor(buckets: readonly number[]) {
    super(() => new LockCounts(buckets));
  }

  begin(): void {
    this.waiting += 1;
    this.counts.attempts += 1;
  }

  /** The call is admitted, or refused. A call that began before anybody listened was not counted. */
  settle(): void {
    if (this.waiting > 0) this.waiting -= 1;
  }

  /** The hold has ended, after `ms`. */
  end(ms: number | undefined): void {
    if (this.held > 0) this.held -= 1;
    if (ms !== undefined) this.counts.hold.observe(ms);
  }
}

class LockCounts {
  attempts = 0;
  contended = 0;
  readonly acquired = { false: 0, true: 0 };
  readonly failed = zeros<LockFailed['reason'] | 'timeout'>('aborted', 'backend', 'shutdown', 'timeout');
  readonly lost = zeros<LockLost['reason']>('expired', 'taken', 'maxHold', 'shutdown');
  readonly released = { false: 0, true: 0 };
  releasedLate = 0;
  renewed = 0;
  renewFailed = 0;
  readonly handedOver = { process: 0, elsewhere: 0 };
  readonly wait: Distribution;
  readonly hold: Distribution;
  readonly renewal: Distribution;
  readonly lag: Distribution;
  readonly handOver: Distribution;

  constructor(buckets: readonly number[]) {
    this.wait = new Distribution(buckets);
    this.hold = new Distribution(buckets);
    this.renewal = new Distribution(buckets);
    this.lag = new Distribution(buckets);
    this.handOver = new Distribution(buckets);
  }
}
