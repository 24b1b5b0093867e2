import { isThrown } from '../../errors/limited-log.js';
import { SemaphoreTimeoutError, type PermitLostReason } from '../../errors/primitive-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import {
  semaphoreChannels,
  type SemaphoreCall,
  type SemaphoreFailed,
  type SemaphoreHoldEvent,
} from '../../events/semaphore-channels.js';
import type { HeldPermit } from './held-permit.js';
import type { PermitCall } from './permit-line.js';
import type { SemaphoreSettings } from './semaphore-options.js';

/** What all events of a call have in common. */
export function callOf(
  { backend, label }: LockSource,
  key: string,
  { template, count, permits }: SemaphoreSettings,
): SemaphoreCall {
  return { key, template, count, permits, backend, label };
}

/** Publishes that the call that began at `startedAt` has its permits, and notes since when. */
export function publishAcquired(permit: HeldPermit, startedAt: number): void {
  permit.grantedAt = performance.now();
  if (!semaphoreChannels.acquired.hasSubscribers) return;
  const { taker: call, owner, fencingToken, grantedAt } = permit;
  semaphoreChannels.acquired.publish({ call, owner, fencingToken, waited: grantedAt - startedAt });
}

/** Publishes why a call ended without permits; `reason` where too few of them were not why. */
export function publishRefusal(refused: PermitCall, error: unknown, reason: SemaphoreFailed['reason']): void {
  const { timedOut, failed } = semaphoreChannels;
  const busy = isThrown(error, SemaphoreTimeoutError);
  if (!(busy ? timedOut : failed).hasSubscribers) return;
  const event = { call: refused.call, waited: performance.now() - refused.startedAt };
  if (busy) timedOut.publish(event);
  else failed.publish({ ...event, reason, error });
}

export function publishLost(permit: HeldPermit, reason: PermitLostReason, at = performance.now()): void {
  if (!semaphoreChannels.lost.hasSubscribers) return;
  semaphoreChannels.lost.publish({ ...eventOf(permit), reason, held: heldFor(permit, at) });
}

export function publishReleased(permit: HeldPermit, at: number): void {
  const { taker: call, owner, fencingToken } = permit;
  semaphoreChannels.released.publish({ call, owner, fencingToken, held: heldFor(permit, at) });
}

/** Milliseconds from the grant to `at` (monotonic, ms); `undefined` if nobody listened then. */
function heldFor({ grantedAt }: HeldPermit, at: number): number | undefined {
  return grantedAt === undefined ? undefined : at - grantedAt;
}

function eventOf({ taker: call, owner, fencingToken }: HeldPermit): SemaphoreHoldEvent {
  return { call, owner, fencingToken };
}
