import type { Meter } from '@opentelemetry/api';
import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import { listenAll } from '../listen-all.js';
import { seriesOf } from './attributes.js';
import { durations } from './durations.js';

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
