import {
  idempotencyChannels,
  type IdempotencyEventTypes,
  type IdempotencyRan,
} from '../../events/idempotency-channels.js';
import { latchChannels, type LatchEvent, type LatchEventTypes, type LatchFailed } from '../../events/latch-channels.js';
import {
  leaderChannels,
  type LeaderEvent,
  type LeaderEventTypes,
  type LeaderLost,
  type LeaderResigned,
} from '../../events/leader-channels.js';
import {
  rateLimitChannels,
  type RateLimitDecided,
  type RateLimitEventTypes,
} from '../../events/rate-limit-channels.js';
import { scheduleChannels, type ScheduleEvent, type ScheduleEventTypes } from '../../events/schedule-channels.js';
import { listenAll, type Listeners } from '../event-stream.js';
import { Distribution, MetricFamily, Series, zeros, type MetricSet } from './metric-family.js';

/** Counts the events of idempotent methods. */
export function idempotencyMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): MetricSet {
  const family = new MetricFamily(
    `${prefix}idempotency_`,
    maxTemplates,
    () => new Series(() => new IdempotencyCounts(buckets)),
  );
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

class IdempotencyCounts {
  readonly calls = zeros<keyof IdempotencyEventTypes>('ran', 'failed', 'repeated', 'conflict', 'busy', 'unavailable');
  reattempts = 0;
  readonly attempt: Distribution;

  constructor(buckets: readonly number[]) {
    this.attempt = new Distribution(buckets);
  }
}

/** Counts the events of latches. No decorator waits for one, so all count as `none`. */
export function latchMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): MetricSet {
  const family = new MetricFamily(`${prefix}latch_`, maxTemplates, () => new Series(() => new LatchCounts(buckets)));
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

class LatchCounts {
  arrivals = 0;
  opened = 0;
  readonly failed = zeros<LatchFailed['reason'] | 'timeout'>('aborted', 'backend', 'shutdown', 'timeout');
  readonly wait: Distribution;

  constructor(buckets: readonly number[]) {
    this.wait = new Distribution(buckets);
  }
}

/** Counts the events of candidates. The template of one is the name of its leadership: a process stands for a few. */
export function leaderMetrics(prefix: string, maxTemplates: number): MetricSet {
  const family = new MetricFamily(`${prefix}leader_`, maxTemplates, () => new LeaderSeries());
  family.counter('elected', 'Terms of this process that began', (of) => of.elected);
  family.counter('lost', 'Terms that ended because the lease was lost', (of) => of.lost, 'reason');
  family.counter('resigned', 'Terms that the leader ended itself', (of) => of.resigned, 'reason');
  family.gauge('leading', '1 while this process leads', (series) => series.leading);
  family.gauge('candidates', '1 while this process stands for the leadership', (series) => series.candidates);
  const of = ({ backend, name }: LeaderEvent) => family.of({ backend, template: name });
  const listeners: Listeners<LeaderEventTypes> = {
    joined: (event) => void (of(event).candidates += 1),
    left: (event) => of(event).leave(),
    elected: (event) => {
      const series = of(event);
      series.leading += 1;
      series.counts.elected += 1;
    },
    lost: (event) => {
      const series = of(event);
      series.step();
      series.counts.lost[event.reason] += 1;
    },
    resigned: (event) => {
      const series = of(event);
      series.step();
      series.counts.resigned[event.reason] += 1;
    },
  };
  return { all: family.all, listen: () => listenAll(leaderChannels, listeners) };
}

class LeaderSeries extends Series<LeaderCounts> {
  leading = 0;
  candidates = 0;

  constructor() {
    super(() => new LeaderCounts());
  }

  /** A term ended. One that began before anybody listened was not counted. */
  step(): void {
    if (this.leading > 0) this.leading -= 1;
  }

  /** A candidacy ended. */
  leave(): void {
    if (this.candidates > 0) this.candidates -= 1;
  }
}

class LeaderCounts {
  elected = 0;
  readonly lost = zeros<LeaderLost['reason']>('expired', 'taken', 'maxHold', 'shutdown');
  readonly resigned = zeros<LeaderResigned['reason']>('resigned', 'left', 'failed');
}

type DecidedBy = RateLimitDecided['decidedBy'];

/** Counts the events of rate limits. */
export function rateLimitMetrics(prefix: string, maxTemplates: number): MetricSet {
  const family = new MetricFamily(`${prefix}rate_limit_`, maxTemplates, () => new Series(() => new RateLimitCounts()));
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

class RateLimitCounts {
  readonly allowed = zeros<DecidedBy>('store', 'process', 'nobody');
  readonly refused = zeros<DecidedBy>('store', 'process', 'nobody');
  failed = 0;
}

/** Counts the events of scheduled jobs; the template of one is its name in `@ScheduledLock`. */
export function scheduleMetrics(prefix: string, maxTemplates: number, buckets: readonly number[]): MetricSet {
  const family = new MetricFamily(`${prefix}schedule_`, maxTemplates, () => new ScheduleSeries(buckets));
  family.counter('runs', 'Runs of this process that have ended', (of) => of.runs, 'outcome');
  family.counter('skipped', 'Calls that found the name taken, and did not run', (of) => of.skipped);
  family.counter('unavailable', 'Calls that did not run, because the backend failed', (of) => of.unavailable);
  family.gauge('running', 'Runs of this process', (of) => of.running);
  family.latest(
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
