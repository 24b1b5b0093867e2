import { lockChannels, type LockCall, type LockEventTypes } from '../../events/lock-channels.js';
import { listenAll, type Listeners } from '../listen-all.js';
import type { ExportedMetric } from './exported-metric.js';
import { LockSeries } from './lock-series.js';
import { MetricFamily } from './metric-family.js';

/** Counts the events of locks, by template and backend. */
export class LockMetrics {
  private readonly family: MetricFamily<LockSeries>;

  constructor(prefix: string, maxTemplates: number, buckets: readonly number[]) {
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
    this.family = family;
  }

  get all(): readonly ExportedMetric[] {
    return this.family.all;
  }

  /** Returns the function that stops the count. */
  listen(): () => void {
    const { family } = this;
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
      timedOut: ({ call }) => this.fail(call, 'timeout'),
      failed: ({ call, reason }) => this.fail(call, reason),
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
    return listenAll(lockChannels, listeners);
  }

  private fail(call: LockCall, reason: keyof LockSeries['counts']['failed']): void {
    const series = this.family.of(call);
    series.settle();
    series.counts.failed[reason] += 1;
  }
}
