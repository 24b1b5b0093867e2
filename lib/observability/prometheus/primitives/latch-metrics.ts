import {
  latchChannels,
  type LatchEvent,
  type LatchEventTypes,
  type LatchFailed,
} from '../../../events/latch-channels.js';
import { listenAll, type Listeners } from '../../listen-all.js';
import { Distribution } from '../distribution.js';
import { MetricFamily } from '../metric-family.js';
import { Series, zeros } from '../series.js';
import type { PrimitiveMetrics } from './primitive-metrics.js';

/** Counts the events of latches. No decorator waits for one, so all count as `none`. */
export function latchMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): PrimitiveMetrics {
  const family = new MetricFamily(`${prefix}latch_`, maxTemplates, () => new LatchSeries(buckets));
  family.counter('arrivals', 'Arrivals that reached the store', (of) => of.arrivals);
  family.counter('opened', 'Waits that ended because the latch was open', (of) => of.opened);
  family.counter('failed', 'Waits that ended before the latch was open', (of) => of.failed, 'reason');
  family.histogram('wait', 'Time from the call to the answer that the latch is open', (of) => of.wait);
  const of = ({ backend }: LatchEvent) => family.of({ backend, template: undefined }).counts;
  const listeners: Listeners<LatchEventTypes> = {
    countedDown: (event) => void (of(event).arrivals += 1),
    opened: (event) => {
      const counts = of(event);
      counts.opened += 1;
      counts.wait.observe(event.waited);
    },
    timedOut: (event) => void (of(event).failed.timeout += 1),
    failed: (event) => void (of(event).failed[event.reason] += 1),
  };
  return { all: family.all, listen: () => listenAll(latchChannels, listeners) };
}

class LatchSeries extends Series<LatchCounts> {
  constructor(buckets: readonly number[]) {
    super(() => new LatchCounts(buckets));
  }
}

class LatchCounts {
  arrivals = 0;
  opened = 0;
  readonly failed = zeros<LatchFailed['reason'] | 'timeout'>('aborted', 'backend', 'shutdown', 'timeout');
  readonly wait: Distribution;

  constructor(buckets: readonly number[]) {
    this.wait = new Distribution(buckets);
  }
}
