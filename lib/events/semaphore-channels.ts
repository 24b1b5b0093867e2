import type { PermitLostReason } from '../errors/primitive-errors.js';
import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** One call that takes permits. All events of the call have the same object, by which a listener relates them. */
export interface SemaphoreCall extends LockSource {
  readonly key: string;
  /** The key template of the decorator, or `Class.method` if it has a function; `undefined` without a decorator. */
  readonly template: string | undefined;
  /** How many permits the call takes. */
  readonly count: number;
  /** How many permits the semaphore has, as the call said. */
  readonly permits: number;
}

/** An event of one call. */
export interface SemaphoreCallEvent {
  readonly call: SemaphoreCall;
}

/** A call asks for permits. Exactly one of `acquired`, `timedOut` and `failed` follows. */
export interface SemaphoreAttempt extends SemaphoreCallEvent {
  /** How long the call waits at most, in ms. */
  readonly wait: number;
}

/** The call found too few permits free, or other calls ahead of it; at most once for each call. */
export interface SemaphoreContended extends SemaphoreCallEvent {}

/** An event of one hold. */
export interface SemaphoreHoldEvent extends SemaphoreCallEvent {
  /** The ticket under which the store knows the holder. */
  readonly owner: string;
  readonly fencingToken: number;
}

/** The call holds its permits. Exactly one of `released` and `lost` follows. */
export interface SemaphoreAcquired extends SemaphoreHoldEvent {
  /** Milliseconds from the call to the grant. */
  readonly waited: number;
}

/** Too few permits were free for the `wait` of the call. */
export interface SemaphoreTimedOut extends SemaphoreCallEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
}

/** The call ended without permits, for another reason than that too few were free. */
export interface SemaphoreFailed extends SemaphoreCallEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
  /** `aborted`: its `signal` was aborted. `shutdown`: the application was ending. `backend`: the store failed. */
  readonly reason: 'aborted' | 'backend' | 'shutdown';
  readonly error: unknown;
}

/** The permits were lost before their holder ended: more calls than permits may run. */
export interface SemaphoreLost extends SemaphoreHoldEvent {
  readonly reason: PermitLostReason;
  /** Milliseconds from the grant; `undefined` if nobody listened then. */
  readonly held: number | undefined;
}

/** The holder gave the permits back in time. */
export interface SemaphoreReleased extends SemaphoreHoldEvent {
  /** Milliseconds from the grant; `undefined` if nobody listened then. */
  readonly held: number | undefined;
}

/** The events of semaphores, by name. */
export interface SemaphoreEventTypes {
  attempt: SemaphoreAttempt;
  contended: SemaphoreContended;
  acquired: SemaphoreAcquired;
  timedOut: SemaphoreTimedOut;
  failed: SemaphoreFailed;
  lost: SemaphoreLost;
  released: SemaphoreReleased;
}

/** The channels of the semaphores. */
export const semaphoreChannels: EventChannels<SemaphoreEventTypes> = {
  attempt: eventChannel('semaphore:attempt'),
  contended: eventChannel('semaphore:contended'),
  acquired: eventChannel('semaphore:acquired'),
  timedOut: eventChannel('semaphore:timed-out'),
  failed: eventChannel('semaphore:failed'),
  lost: eventChannel('semaphore:lost'),
  released: eventChannel('semaphore:released'),
};
