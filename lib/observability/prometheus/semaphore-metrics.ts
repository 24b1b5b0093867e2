import {
  semaphoreChannels,
  type SemaphoreCall,
  type SemaphoreEventTypes,
  type SemaphoreFailed,
  type SemaphoreLost,
} from '../../events/semaphore-channels.js';
import { listenAll, type Listeners } from '../event-stream.js';
import { Distribution, MetricFamily, Series, zeros, type MetricSet } from './metric-family.js';

/** Counts the events of semaphores. */
export function semaphoreMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): MetricSet {
  const family = new MetricFamily(`${prefix}semaphore_`, maxTemplates, () => new SemaphoreSeries(buckets));
  family.counter('attempts', 'Calls that asked for permits', (of) => of.attempts);
  family.counter('acquired', 'Calls that got their permits', (of) => of.acquired);
  family.counter('failed', 'Calls that ended without permits', (of) => of.failed, 'reason');
  family.counter('contended', 'Calls that found too few permits free', (of) => of.contended);
  family.counter('released', 'Holds of permits that ended in time', (of) => of.released);
  family.counter('lost', 'Holds of permits that were lost', (of) => of.lost, 'reason');
  family.gauge('held', 'Permits that this process holds', (of) => of.held);
  family.gauge('waiting', 'Calls of this process that wait for permits', (of) => of.waiting);
  family.histogram('wait', 'Time from the call to the grant of its permits', (of) => of.wait);
  family.histogram('hold', 'Time from the grant of permits to their release or loss', (of) => of.hold);
  const fail = (call: SemaphoreCall, reason: keyof SemaphoreCounts['failed']) => {
    const series = family.of(call);
    series.settle();
    series.counts.failed[reason] += 1;
  };
  const listeners: Listeners<SemaphoreEventTypes> = {
    attempt: ({ call }) => {
      const series = family.of(call);
      series.waiting += 1;
      series.counts.attempts += 1;
    },
    contended: ({ call }) => void (family.of(call).counts.contended += 1),
    acquired: ({ call, waited }) => {
      const series = family.of(call);
      series.settle();
      series.held += call.count;
      series.counts.acquired += 1;
      series.counts.wait.observe(waited);
    },
    timedOut: ({ call }) => fail(call, 'timeout'),
    failed: ({ call, reason }) => fail(call, reason),
    lost: ({ call, reason, held }) => {
      const series = family.of(call);
      series.counts.lost[reason] += 1;
      series.end(call, held);
    },
    released: ({ call, held }) => {
      const series = family.of(call);
      series.counts.released += 1;
      series.end(call, held);
    },
  };
  return { all: family.all, listen: () => listenAll(semaphoreChannels, listeners) };
}

class SemaphoreSeries extends Series<SemaphoreCounts> {
  /** Permits that are held. */
  held = 0;
  /** Calls that have neither got their permits nor ended without. */
  waiting = 0;

  constructor(buckets: readonly number[]) {
    super(() => new SemaphoreCounts(buckets));
  }

  /** The call waits no longer. One that began before anybody listened was not counted. */
  settle(): void {
    if (this.waiting > 0) this.waiting -= 1;
  }

  /** The hold has ended, after `ms`; that is `undefined` for one that was not counted. */
  end({ count }: SemaphoreCall, ms: number | undefined): void {
    if (ms === undefined) return;
    this.held = Math.max(0, this.held - count);
    this.counts.hold.observe(ms);
  }
}

class SemaphoreCounts {
  attempts = 0;
  acquired = 0;
  contended = 0;
  released = 0;
  readonly failed = zeros<SemaphoreFailed['reason'] | 'timeout'>('aborted', 'backend', 'shutdown', 'timeout');
  readonly lost = zeros<SemaphoreLost['reason']>('expired', 'taken', 'shutdown');
  readonly wait: Distribution;
  readonly hold: Distribution;

  constructor(buckets: readonly number[]) {
    this.wait = new Distribution(buckets);
    this.hold = new Distribution(buckets);
  }
}
