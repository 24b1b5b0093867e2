import type { Meter } from '@opentelemetry/api';
import { idempotencyChannels, type IdempotencyEvent } from '../../events/idempotency-channels.js';
import { latchChannels, type LatchEvent } from '../../events/latch-channels.js';
import { leaderChannels, type LeaderEvent } from '../../events/leader-channels.js';
import { rateLimitChannels, type RateLimitDecided } from '../../events/rate-limit-channels.js';
import { scheduleChannels } from '../../events/schedule-channels.js';
import { listenAll } from '../listen-all.js';
import { ATTRIBUTE, seriesOf, typeOf } from './attributes.js';
import { durations } from './durations.js';
import { listenToSemaphoreMetrics } from './semaphore-instruments.js';

/** Measures the primitives. Returns the functions that stop. */
export function listenToPrimitiveMetrics(meter: Meter): (() => void)[] {
  const listeners = [listenToSemaphoreMetrics, listenToLatches, listenToJobs, listenToIdempotency, listenToRateLimits];
  return [...listeners, listenToLeaders].map((listen) => listen(meter));
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
