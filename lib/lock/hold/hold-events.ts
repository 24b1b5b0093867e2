import { LockTimeoutError, type LockLostReason } from '../../errors/lock-errors.js';
import { lockChannels, type LockHoldEvent } from '../../events/lock-channels.js';
import type { ReleaseOutcome } from '../grant/lease.js';
import type { Caller } from '../line/caller.js';
import type { HeldLock } from './held-lock.js';

/** Whether somebody listens to the beginning or the end of holds. */
export function holdsAreObserved(): boolean {
  const { acquired, released, lost, releasedLate } = lockChannels;
  return acquired.hasSubscribers || released.hasSubscribers || lost.hasSubscribers || releasedLate.hasSubscribers;
}

/** Publishes that the caller has the hold, and notes since when. */
export function publishAcquired(hold: HeldLock, caller: Caller): void {
  hold.grantedAt = performance.now();
  if (!lockChannels.acquired.hasSubscribers) return;
  const { call, owner, fencingToken, reentrant } = hold;
  // V8 takes 2 µs to spread an object into another, a fifth of what a free lock costs.
  lockChannels.acquired.publish({ call, owner, fencingToken, waited: caller.waited(), reentrant });
}

/** Publishes why the call of `caller` ended without the lock. */
export function publishRefusal(caller: Caller, error: unknown, closing: boolean): void {
  const { timedOut, failed } = lockChannels;
  if (caller.first?.failed) return;
  if (error instanceof LockTimeoutError) {
    if (!timedOut.hasSubscribers) return;
    return timedOut.publish({ call: caller.call, waited: caller.waited(), remaining: error.remaining });
  }
  if (!failed.hasSubscribers) return;
  const reason = closing ? 'shutdown' : caller.cancellation ? 'aborted' : 'backend';
  failed.publish({ call: caller.call, waited: caller.waited(), reason, error });
}

export function publishLost(hold: HeldLock, reason: LockLostReason): void {
  lockChannels.lost.publish({ ...eventOf(hold), reason, held: heldFor(hold) });
}

/** The end of a hold that was trusted until then. It is published once the backend has answered to the release. */
export interface ObservedEnd {
  readonly held: number | undefined;
}

/** Called when a hold ends; `late`: it was known to be lost. Publishes at once if it was, or if its deadline passed. */
export function observeEnd(hold: HeldLock, late: boolean): ObservedEnd | undefined {
  if (!late && !hold.isLost) return { held: heldFor(hold) };
  if (!late) publishLost(hold, 'expired');
  lockChannels.releasedLate.publish({ ...eventOf(hold), held: heldFor(hold) });
  return undefined;
}

/** `taken`: the backend answered that the lock had been taken away before its release. */
export function publishEnd(hold: HeldLock, { held }: ObservedEnd, outcome: ReleaseOutcome, taken: boolean): void {
  const { call, owner, fencingToken } = hold;
  if (taken) lockChannels.lost.publish({ call, owner, fencingToken, reason: 'taken', held });
  else lockChannels.released.publish({ call, owner, fencingToken, held, confirmed: outcome !== 'unconfirmed' });
}

function eventOf({ call, owner, fencingToken }: HeldLock): LockHoldEvent {
  return { call, owner, fencingToken };
}

function heldFor({ grantedAt }: HeldLock): number | undefined {
  return grantedAt === undefined ? undefined : performance.now() - grantedAt;
}
