import {
  rateLimitChannels,
  type RateLimitDecided,
  type RateLimitEventTypes,
} from '../../../events/rate-limit-channels.js';
import { listenAll, type Listeners } from '../../listen-all.js';
import { MetricFamily } from '../metric-family.js';
import { Series, zeros } from '../series.js';
import type { PrimitiveMetrics } from './primitive-metrics.js';

type DecidedBy = RateLimitDecided['decidedBy'];

/** Counts the events of rate limits. */
export function rateLimitMetrics(prefix: string, maxTemplates: number): PrimitiveMetrics {
  const family = new MetricFamily(`${prefix}rate_limit_`, maxTemplates, () => new RateLimitSeries());
  family.counter('allowed', 'Calls that were allowed', (of) => of.allowed, 'decided_by');
  family.counter('refused', 'Calls that were refused', (of) => of.refused, 'decided_by');
  family.counter('failed', 'Calls that rejected, because the store failed', (of) => of.failed);
  const listeners: Listeners<RateLimitEventTypes> = {
    allowed: (event) => void (family.of(event).counts.allowed[event.decidedBy] += 1),
    refused: (event) => void (family.of(event).counts.refused[event.decidedBy] += 1),
    failed: (event) => void (family.of(event).counts.failed += 1),
  };
  return { all: family.all, listen: () => listenAll(rateLimitChannels, listeners) };
}

class RateLimitSeries extends Series<RateLimitCounts> {
  constructor() {
    super(() => new RateLimitCounts());
  }
}

class RateLimitCounts {
  readonly allowed = zeros<DecidedBy>('store', 'process', 'nobody');
  readonly refused = zeros<DecidedBy>('store', 'process', 'nobody');
  failed = 0;
}
