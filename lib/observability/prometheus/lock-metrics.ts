import {
  lockChannels,
  type LockCall,
  type LockEventTypes,
  type LockFailed,
  type LockLost,
} from '../../events/lock-channels.js';
import { listenAll, type Listeners } from '../event-stream.js';
import { MetricFamily, Distribution, Series, zeros, type MetricSet } from './metric-family.js';

/** Counts the events of locks, by template and backend. */
export function lockMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): MetricSet {
  const family = new MetricFamily(`${prefix}lock_`, maxTemplates, () => new LockSeries(buckets));
  family.counter('attempts', 'Calls that asked for a lock', (of) => of.attempts);
  family.counter('acquired', 'Calls that got the lock', (of) => of.acquired, 'reentrant');
  family.counter('failed', 'Calls that ended without the lock', (of) => of.failed, 'reason');
  family.counter('contended', 'Calls that found the lock taken', (of) => of.contended);
  family.counter('released', 'Holds that ended in time', (of) => of.released, 'confirmed');
  family.counter('lost', 'Holds that were lost', (of) => of.lost, 'reason');
  family.counter('released_late', 'Holders that ended after they had lost the lock', (of) => of.releasedLate);
  family.counter('handed_over', 'Locks that passed to the next holder directly', (of) => of.handedOver, 'from');
  family.counter('renewed', 'Renewals that the backend confirmed', (of) => of.renewed);
  family.counter('renew_failed', 'Renewals that failed', (of) => of.renewFailed);
  family.gauge('held', 'Holds of this process', (of) => of.held);
  family.gauge('waiting', 'Calls of this process that wait for a lock', (of) => of.waiting);
  family.histogram('wait', 'Time from the call to the grant', (of) => of.wait);
  family.histogram('hold', 'Time from the grant to the release or the loss', (of) => of.hold);
  family.histogram(
    'hand_over',
    'Time from the end of a hold to the next grant in the same process',
    (of) => of.handOver,
  );
  family.histogram('renewal', 'Time from the request of a renewal to its answer', (of) => of.renewal);
  family.histogram('watchdog_lag', 'Time by which a renewal was sent later than it was due', (of) => of.lag);
  const fail = (call: LockCall, reason: keyof LockCounts['failed']) => {
    const series = family.of(call);
    series.settle();
    series.counts.failed[reason] += 1;
  };
  const listeners: Listeners<LockEventTypes> = {
    attempt: ({ call }) => family.of(call).begin(),
    contended: ({ call }) => void (family.of(call).counts.contended += 1),
    acquired: ({ call, reentrant, waited }) => {
      const series = family.of(call);
      series.settle();
      series.held += 1;
      series.counts.acquired[`${reentrant}`] += 1;
      series.counts.wait.observe(waited);
    },
    timedOut: ({ call }) => fail(call, 'timeout'),
    failed: ({ call, reason }) => fail(call, reason),
    handedOver: ({ call, latency }) => {
      const { counts } = family.of(call);
      counts.handedOver[latency === undefined ? 'elsewhere' : 'process'] += 1;
      if (latency !== undefined) counts.handOver.observe(latency);
    },
    renewed: ({ call, took, lag }) => {
      const { counts } = family.of(call);
      counts.renewed += 1;
      counts.renewal.observe(took);
      counts.lag.observe(lag);
    },
    renewFailed: ({ call }) => void (family.of(call).counts.renewFailed += 1),
    lost: ({ call, reason, held }) => {
      const series = family.of(call);
      series.counts.lost[reason] += 1;
      series.end(held);
    },
    released: ({ call, confirmed, held }) => {
      const series = family.of(call);
      series.counts.released[`${confirmed}`] += 1;
      series.end(held);
    },
    releasedLate: ({ call }) => void (family.of(call).counts.releasedLate += 1),
  };
  return { all: family.all, listen: () => listenAll(lockChannels, listeners) };
}

/** The numbers of the locks of one template at one backend. */
class LockSeries extends Series<LockCounts> {
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
