import type { Meter, Attributes } from '@opentelemetry/api';
import { cacheChannels, type CacheLoadStarted } from '../../events/cache-channels.js';
import { idempotencyChannels, type IdempotencyEvent } from '../../events/idempotency-channels.js';
import { latchChannels, type LatchEvent } from '../../events/latch-channels.js';
import { leaderChannels, type LeaderEvent } from '../../events/leader-channels.js';
import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import { rateLimitChannels, type RateLimitDecided } from '../../events/rate-limit-channels.js';
import { scheduleChannels } from '../../events/schedule-channels.js';
import { semaphoreChannels, type SemaphoreCall } from '../../events/semaphore-channels.js';
import { listenAll } from '../event-stream.js';
import { seriesOf, durations, ATTRIBUTE, typeOf } from './attributes.js';

/** Measures the locks. Returns the function that stops. */
export function listenToLockMetrics(meter: Meter): () => void {
  const acquire = durations(
    meter,
    'nest_redis_lock.acquire.duration',
    'Time from the call to the grant or the refusal',
  );
  const hold = durations(meter, 'nest_redis_lock.hold.duration', 'Time from the grant to the release or the loss');
  const handOver = durations(
    meter,
    'nest_redis_lock.hand_over.duration',
    'Time from the end of a hold to the next grant in the same process',
  );
  const renewal = durations(meter, 'nest_redis_lock.renewal.duration', 'Time from a renewal to its answer');
  const lag = durations(meter, 'nest_redis_lock.renewal.lag', 'Time by which a renewal was sent later than it was due');
  const renewalFailures = meter.createCounter('nest_redis_lock.renewal.failures', {
    description: 'Renewals that failed',
    unit: '{failure}',
  });
  const waiting = meter.createUpDownCounter('nest_redis_lock.waiting', {
    description: 'Calls that wait for a lock',
    unit: '{call}',
  });
  const held = meter.createUpDownCounter('nest_redis_lock.held', { description: 'Holds', unit: '{hold}' });

  const calls = new WeakSet<LockCall>();
  const holds = new WeakSet<LockCall>();
  const settle = (call: LockCall, waited: number, errorType?: string) => {
    acquire(waited, seriesOf(call, errorType));
    if (calls.delete(call)) waiting.add(-1, seriesOf(call));
  };
  const end = (call: LockCall, ms: number | undefined, errorType?: string) => {
    if (ms !== undefined) hold(ms, seriesOf(call, errorType));
    if (holds.delete(call)) held.add(-1, seriesOf(call));
  };
  return listenAll(lockChannels, {
    attempt: ({ call }) => {
      calls.add(call);
      waiting.add(1, seriesOf(call));
    },
    acquired: ({ call, waited }) => {
      settle(call, waited);
      holds.add(call);
      held.add(1, seriesOf(call));
    },
    timedOut: ({ call, waited }) => settle(call, waited, 'timeout'),
    failed: ({ call, waited, reason }) => settle(call, waited, reason),
    handedOver: ({ call, latency }) => {
      if (latency !== undefined) handOver(latency, seriesOf(call));
    },
    renewed: ({ call, took, lag: late }) => {
      renewal(took, seriesOf(call));
      lag(late, seriesOf(call));
    },
    renewFailed: ({ call }) => renewalFailures.add(1, seriesOf(call)),
    lost: ({ call, reason, held: ms }) => end(call, ms, reason),
    released: ({ call, held: ms }) => end(call, ms),
  });
}

/** Measures the caches. Returns the function that stops. */
export function listenToCacheMetrics(meter: Meter): () => void {
  const counter = (name: string, description: string, unit: string) =>
    meter.createCounter(`nest_redis_lock.cache.${name}`, { description, unit });
  const reads = counter('reads', 'Reads, by what they found', '{read}');
  const refreshFailures = counter('refresh.failures', 'Loads in the background that failed', '{failure}');
  const refusals = counter('commit.refusals', 'Loaded values that the store refused', '{value}');
  const invalidations = counter('invalidations', 'Invalidations, by what they name', '{invalidation}');
  const openings = counter('breaker.openings', 'Times that the circuit breaker opened', '{opening}');
  const load = durations(meter, 'nest_redis_lock.cache.load.duration', 'Time that loaders ran');
  const loading = meter.createUpDownCounter('nest_redis_lock.cache.loading', {
    description: 'Loads that run',
    unit: '{load}',
  });

  const running = new WeakSet<CacheLoadStarted>();
  return listenAll(cacheChannels, {
    hit: ({ template, level, stale }) => {
      reads.add(1, {
        ...byTemplate(template),
        [ATTRIBUTE.outcome]: stale ? 'stale' : 'hit',
        [ATTRIBUTE.level]: level,
      });
    },
    miss: ({ template }) => reads.add(1, { ...byTemplate(template), [ATTRIBUTE.outcome]: 'miss' }),
    loadStarted: (started) => {
      running.add(started);
      loading.add(1, byTemplate(started.template));
    },
    load: ({ template, load: started, took, error }) => {
      if (started && running.delete(started)) loading.add(-1, byTemplate(template));
      const failed = error === undefined ? {} : { [ATTRIBUTE.errorType]: typeOf(error) };
      if (took !== undefined) load(took, { ...byTemplate(template), ...failed });
    },
    refreshFailed: ({ template }) => refreshFailures.add(1, byTemplate(template)),
    commitRefused: ({ template }) => refusals.add(1, byTemplate(template)),
    invalidate: ({ key, tag }) => {
      const by = key !== undefined ? 'key' : tag !== undefined ? 'tag' : 'matching';
      invalidations.add(1, { [ATTRIBUTE.by]: by });
    },
    breakerOpened: () => openings.add(1),
  });
}

/** Measures the primitives. Returns the functions that stop. */
export function listenToPrimitiveMetrics(meter: Meter): (() => void)[] {
  const listeners = [listenToSemaphores, listenToLatches, listenToJobs, listenToIdempotency, listenToRateLimits];
  return [...listeners, listenToLeaders].map((listen) => listen(meter));
}

function listenToSemaphores(meter: Meter): () => void {
  const name = (measure: string) => `nest_redis_lock.semaphore.${measure}`;
  const acquire = durations(meter, name('acquire.duration'), 'Time from the call to its permits or the refusal');
  const hold = durations(meter, name('hold.duration'), 'Time from the grant of permits to their release or loss');
  const waiting = meter.createUpDownCounter(name('waiting'), {
    description: 'Calls that wait for permits',
    unit: '{call}',
  });
  const held = meter.createUpDownCounter(name('held'), { description: 'Permits that are held', unit: '{permit}' });

  const calls = new WeakSet<SemaphoreCall>();
  const holds = new WeakSet<SemaphoreCall>();
  const settle = (call: SemaphoreCall, waited: number, errorType?: string) => {
    acquire(waited, seriesOf(call, errorType));
    if (calls.delete(call)) waiting.add(-1, seriesOf(call));
  };
  const end = (call: SemaphoreCall, ms: number | undefined, errorType?: string) => {
    if (ms !== undefined) hold(ms, seriesOf(call, errorType));
    if (holds.delete(call)) held.add(-call.count, seriesOf(call));
  };
  return listenAll(semaphoreChannels, {
    attempt: ({ call }) => {
      calls.add(call);
      waiting.add(1, seriesOf(call));
    },
    acquired: ({ call, waited }) => {
      settle(call, waited);
      holds.add(call);
      held.add(call.count, seriesOf(call));
    },
    timedOut: ({ call, waited }) => settle(call, waited, 'timeout'),
    failed: ({ call, waited, reason }) => settle(call, waited, reason),
    lost: ({ call, reason, held: ms }) => end(call, ms, reason),
    released: ({ call, held: ms }) => end(call, ms),
  });
}

function listenToLatches(meter: Meter): () => void {
  const wait = durations(meter, 'nest_redis_lock.latch.wait.duration', 'Time that calls waited for a latch');
  const of = ({ backend }: LatchEvent, errorType?: string) => seriesOf({ backend, template: undefined }, errorType);
  return listenAll(latchChannels, {
    opened: (event) => wait(event.waited, of(event)),
    timedOut: (event) => wait(event.waited, of(event, 'timeout')),
    failed: (event) => wait(event.waited, of(event, event.reason)),
  });
}

function listenToJobs(meter: Meter): () => void {
  const run = durations(meter, 'nest_redis_lock.schedule.run.duration', 'Time that runs of scheduled jobs took');
  const skipped = meter.createCounter('nest_redis_lock.schedule.skipped', {
    description: 'Calls of scheduled jobs that did not run',
    unit: '{call}',
  });
  return listenAll(scheduleChannels, {
    succeeded: (event) => run(event.took, seriesOf(event)),
    failed: (event) => run(event.took, seriesOf(event, typeOf(event.error))),
    skipped: (event) => skipped.add(1, seriesOf(event)),
    unavailable: (event) => skipped.add(1, seriesOf(event, typeOf(event.error))),
  });
}

function listenToIdempotency(meter: Meter): () => void {
  const calls = meter.createCounter('nest_redis_lock.idempotency.calls', {
    description: 'Calls with an idempotency key, by how they ended',
    unit: '{call}',
  });
  const count = (outcome: keyof typeof idempotencyChannels) => (event: IdempotencyEvent) =>
    calls.add(1, { ...seriesOf(event), [ATTRIBUTE.outcome]: outcome });
  return listenAll(idempotencyChannels, {
    ran: count('ran'),
    failed: count('failed'),
    repeated: count('repeated'),
    conflict: count('conflict'),
    busy: count('busy'),
    unavailable: count('unavailable'),
  });
}

function listenToRateLimits(meter: Meter): () => void {
  const decisions = meter.createCounter('nest_redis_lock.rate_limit.decisions', {
    description: 'Calls with a rate limit, by how they were decided',
    unit: '{call}',
  });
  const decided = (outcome: 'allowed' | 'refused') => (event: RateLimitDecided) =>
    decisions.add(1, {
      ...seriesOf(event),
      [ATTRIBUTE.outcome]: outcome,
      [ATTRIBUTE.decidedBy]: event.decidedBy,
    });
  return listenAll(rateLimitChannels, {
    allowed: decided('allowed'),
    refused: decided('refused'),
    failed: (event) => decisions.add(1, { ...seriesOf(event, typeOf(event.error)), [ATTRIBUTE.outcome]: 'failed' }),
  });
}

function listenToLeaders(meter: Meter): () => void {
  const elections = meter.createCounter('nest_redis_lock.leader.elections', {
    description: 'Terms that began',
    unit: '{term}',
  });
  const losses = meter.createCounter('nest_redis_lock.leader.losses', {
    description: 'Terms that ended because the lease was lost',
    unit: '{term}',
  });
  const of = ({ backend, name }: LeaderEvent, errorType?: string) => seriesOf({ backend, template: name }, errorType);
  return listenAll(leaderChannels, {
    elected: (event) => elections.add(1, of(event)),
    lost: (event) => losses.add(1, of(event, event.reason)),
  });
}

/** The attributes of the metrics of caches, which name no backend. */
function byTemplate(template: string | undefined): Attributes {
  return { [ATTRIBUTE.template]: template ?? 'none' };
}
