import type { Meter } from '@opentelemetry/api';
import { semaphoreChannels, type SemaphoreCall } from '../../events/semaphore-channels.js';
import { listenAll } from '../listen-all.js';
import { seriesOf } from './attributes.js';
import { durations } from './durations.js';

/** Measures the semaphores. Returns the function that stops. */
export function listenToSemaphoreMetrics(meter: Meter): () => void {
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
