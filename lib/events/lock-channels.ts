import type { LockLostReason } from '../errors/lock-errors.js';
import { eventChannel, type EventChannels } from './event-channel.js';

/** Where the locks of a process come from. */
export interface LockSource {
  /** The name of the backend in the module's `backends`; for the main backend the name of its kind, such as `redis`. */
  readonly backend: string;
  /** The module's `label` of this process. */
  readonly label: string;
}

/** One call that takes a lock. All events of the call have the same object, by which a listener relates them. */
export interface LockCall extends LockSource {
  readonly keys: readonly string[];
  /** The key template of the decorator, or `Class.method` if it has a function; `undefined` without a decorator. */
  readonly template: string | undefined;
}

/** An event of one call. */
export interface LockCallEvent {
  readonly call: LockCall;
}

/** A call asks for a lock. Exactly one of `acquired`, `timedOut` and `failed` follows. */
export interface LockAttempt extends LockCallEvent {
  /** How long the call waits at most, in ms. */
  readonly wait: number;
}

/** The call found the name taken, or other calls of this process ahead of it; at most once for each call. */
export interface LockContended extends LockCallEvent {
  /** The ticket of the owner, if the backend told it. */
  readonly owner: string | undefined;
}

/** The call holds the lock. Exactly one of `released` and `lost` follows. */
export interface LockAcquired extends LockCallEvent {
  /** Milliseconds from the call to the grant. */
  readonly waited: number;
  /** The ticket under which the backend knows the holder. */
  readonly owner: string;
  readonly fencingToken: number;
  /** Whether a hold around the call had the names. */
  readonly reentrant: boolean;
}

/** The lock stayed busy for the `wait` of the call. */
export interface LockTimedOut extends LockCallEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
  /** Milliseconds that were left of the owner's lease. */
  readonly remaining: number;
}

/** The call ended without the lock, for another reason than that the lock was busy. */
export interface LockFailed extends LockCallEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
  /** `aborted`: its `signal` was aborted. `shutdown`: the application was ending. `backend`: any other error. */
  readonly reason: 'aborted' | 'backend' | 'shutdown';
  readonly error: unknown;
}

/** The lock passed to the call from the holder before, without being free in between. */
export interface LockHandedOver extends LockCallEvent {
  /** The call whose hold ended; `undefined` if that was in another process. */
  readonly from: LockCall | undefined;
  /** Milliseconds from the end of that hold to the grant; `undefined` if that was in another process. */
  readonly latency: number | undefined;
}

/** An event of one hold. */
export interface LockHoldEvent extends LockCallEvent {
  /** The ticket under which the backend knows the holder. */
  readonly owner: string;
  readonly fencingToken: number;
}

/** The watchdog renewed the lease. */
export interface LockRenewed extends LockHoldEvent {
  /** Milliseconds from the request to the answer. */
  readonly took: number;
  /** Milliseconds by which the watchdog sent the request later than it was due. */
  readonly lag: number;
}

/** A renewal failed; the watchdog repeats it until the lease ends. */
export interface LockRenewFailed extends LockHoldEvent {
  /** How many renewals in a row have failed. */
  readonly failures: number;
  readonly why: string;
}

/** The hold was lost before its holder ended. */
export interface LockLost extends LockHoldEvent {
  readonly reason: LockLostReason;
  /** Milliseconds from the grant; `undefined` if nobody listened then. */
  readonly held: number | undefined;
}

/** The hold ended in time. */
export interface LockReleased extends LockHoldEvent {
  /** Milliseconds from the grant; `undefined` if nobody listened then. */
  readonly held: number | undefined;
  /** Whether the backend has confirmed the release; otherwise it is repeated until the lease ends. */
  readonly confirmed: boolean;
}

/** The holder of a lost lock ended: until then it may have worked without the lock. */
export interface LockReleasedLate extends LockHoldEvent {
  /** Milliseconds from the grant; `undefined` if nobody listened then. */
  readonly held: number | undefined;
}

/** The events of locks, by name. */
export interface LockEventTypes {
  attempt: LockAttempt;
  contended: LockContended;
  acquired: LockAcquired;
  timedOut: LockTimedOut;
  failed: LockFailed;
  handedOver: LockHandedOver;
  renewed: LockRenewed;
  renewFailed: LockRenewFailed;
  lost: LockLost;
  released: LockReleased;
  releasedLate: LockReleasedLate;
}

/** The channels of the locks. */
export const lockChannels: EventChannels<LockEventTypes> = {
  attempt: eventChannel('lock:attempt'),
  contended: eventChannel('lock:contended'),
  acquired: eventChannel('lock:acquired'),
  timedOut: eventChannel('lock:timed-out'),
  failed: eventChannel('lock:failed'),
  handedOver: eventChannel('lock:handed-over'),
  renewed: eventChannel('lock:renewed'),
  renewFailed: eventChannel('lock:renew-failed'),
  lost: eventChannel('lock:lost'),
  released: eventChannel('lock:released'),
  releasedLate: eventChannel('lock:released-late'),
};
