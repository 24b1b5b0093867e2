import { LatchTimeoutError } from '../../errors/latch-errors.js';
import { latchChannels, type LatchEvent, type LatchFailed } from '../../events/latch-channels.js';
import type { LockSource } from '../../events/lock-channels.js';

/** What all events of a latch have in common. */
export function latchEvent({ backend, label }: LockSource, key: string): LatchEvent {
  return { key, backend, label };
}

export function publishOpened(source: LockSource, key: string, startedAt: number): void {
  latchChannels.opened.publish({ ...latchEvent(source, key), waited: performance.now() - startedAt });
}

/** Publishes why a wait ended before the latch opened; `reason` where the time was not why. */
export function publishRefusal(
  source: LockSource,
  key: string,
  startedAt: number,
  error: unknown,
  reason: LatchFailed['reason'],
): void {
  const { timedOut, failed } = latchChannels;
  const late = error instanceof LatchTimeoutError;
  if (!(late ? timedOut : failed).hasSubscribers) return;
  const event = { ...latchEvent(source, key), waited: performance.now() - startedAt };
  if (late) timedOut.publish({ ...event, remaining: error.remaining });
  else failed.publish({ ...event, reason, error });
}
