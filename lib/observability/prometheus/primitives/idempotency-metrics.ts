import {
  idempotencyChannels,
  type IdempotencyEventTypes,
  type IdempotencyRan,
} from '../../../events/idempotency-channels.js';
import { listenAll, type Listeners } from '../../listen-all.js';
import { Distribution } from '../distribution.js';
import { MetricFamily } from '../metric-family.js';
import { Series, zeros } from '../series.js';
import type { PrimitiveMetrics } from './primitive-metrics.js';

/** Counts the events of idempotent methods. */
export function idempotencyMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): PrimitiveMetrics {
  const family = new MetricFamily(`${prefix}idempotency_`, maxTemplates, () => new IdempotencySeries(buckets));
  family.counter('calls', 'Calls with an idempotency key that have ended', (of) => of.calls, 'outcome');
  family.counter('reattempts', 'Attempts that followed one without a kept result', (of) => of.reattempts);
  family.histogram('attempt', 'Time from the begin of an attempt until its result was kept', (of) => of.attempt);
  const end = (event: IdempotencyRan, outcome: 'ran' | 'failed') => {
    const { counts } = family.of(event);
    counts.calls[outcome] += 1;
    if (event.attempt > 1) counts.reattempts += 1;
    counts.attempt.observe(event.took);
  };
  const listeners: Listeners<IdempotencyEventTypes> = {
    ran: (event) => end(event, 'ran'),
    failed: (event) => end(event, 'failed'),
    repeated: (event) => void (family.of(event).counts.calls.repeated += 1),
    conflict: (event) => void (family.of(event).counts.calls.conflict += 1),
    busy: (event) => void (family.of(event).counts.calls.busy += 1),
    unavailable: (event) => void (family.of(event).counts.calls.unavailable += 1),
  };
  return { all: family.all, listen: () => listenAll(idempotencyChannels, listeners) };
}

class IdempotencySeries extends Series<IdempotencyCounts> {
  constructor(buckets: readonly number[]) {
    super(() => new IdempotencyCounts(buckets));
  }
}

class IdempotencyCounts {
  readonly calls = zeros<keyof IdempotencyEventTypes>('ran', 'failed', 'repeated', 'conflict', 'busy', 'unavailable');
  reattempts = 0;
  readonly attempt: Distribution;

  constructor(buckets: readonly number[]) {
    this.attempt = new Distribution(buckets);
  }
}
