import { scheduleChannels, type ScheduleEvent, type ScheduleEventTypes } from '../../../events/schedule-channels.js';
import { listenAll, type Listeners } from '../../listen-all.js';
import { Distribution } from '../distribution.js';
import { MetricFamily } from '../metric-family.js';
import { Series, zeros } from '../series.js';
import type { PrimitiveMetrics } from './primitive-metrics.js';

/** Counts the events of scheduled jobs; the template of one is its name in `@ScheduledLock`. */
export function scheduleMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): PrimitiveMetrics {
  const family = new MetricFamily(`${prefix}schedule_`, maxTemplates, () => new ScheduleSeries(buckets));
  family.counter('runs', 'Runs of this process that have ended', (of) => of.runs, 'outcome');
  family.counter('skipped', 'Calls that found the name taken, and did not run', (of) => of.skipped);
  family.counter('unavailable', 'Calls that did not run, because the backend failed', (of) => of.unavailable);
  family.gauge('running', 'Runs of this process', (of) => of.running);
  family.gauge(
    'last_success_timestamp_seconds',
    'When a run of this process last succeeded, in seconds since 1970; 0 before the first',
    (of) => of.lastSuccess,
  );
  family.histogram('run', 'Time that runs took', (of) => of.run);
  const end = (event: ScheduleEvent & { readonly took: number }, outcome: 'succeeded' | 'failed') => {
    const series = family.of(event);
    if (series.running > 0) series.running -= 1;
    if (outcome === 'succeeded') series.lastSuccess = Date.now() / 1_000;
    series.counts.runs[outcome] += 1;
    series.counts.run.observe(event.took);
  };
  const listeners: Listeners<ScheduleEventTypes> = {
    started: (event) => void (family.of(event).running += 1),
    succeeded: (event) => end(event, 'succeeded'),
    failed: (event) => end(event, 'failed'),
    skipped: (event) => void (family.of(event).counts.skipped += 1),
    unavailable: (event) => void (family.of(event).counts.unavailable += 1),
  };
  return { all: family.all, listen: () => listenAll(scheduleChannels, listeners) };
}

class ScheduleSeries extends Series<ScheduleCounts> {
  running = 0;
  lastSuccess = 0;

  constructor(buckets: readonly number[]) {
    super(() => new ScheduleCounts(buckets));
  }
}

class ScheduleCounts {
  readonly runs = zeros('succeeded', 'failed');
  skipped = 0;
  unavailable = 0;
  readonly run: Distribution;

  constructor(buckets: readonly number[]) {
    this.run = new Distribution(buckets);
  }
}
