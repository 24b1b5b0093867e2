import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** An event of one latch. */
export interface LatchEvent extends LockSource {
  readonly key: string;
}

/** An arrival of this process reached the store. */
export interface LatchCountedDown extends LatchEvent {
  /** The id of the arrival; one that the latch has seen before counts nothing. */
  readonly arrivalId: string;
  /** How many arrivals are missing then: 0 when the latch is open. */
  readonly remaining: number;
}

/** A call that waited for the latch goes on, because it is open. */
export interface LatchOpened extends LatchEvent {
  /** Milliseconds from the call to the answer that the latch is open. */
  readonly waited: number;
}

/** The latch did not open in the `wait` of a call. */
export interface LatchTimedOut extends LatchEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
  /** How many arrivals were missing at the last look; `undefined` if there was no such latch. */
  readonly remaining: number | undefined;
}

/** The wait of a call ended for another reason. */
export interface LatchFailed extends LatchEvent {
  /** Milliseconds from the call to its end. */
  readonly waited: number;
  /** `aborted`: its `signal` was aborted. `shutdown`: the application was ending. `backend`: the store failed. */
  readonly reason: 'aborted' | 'backend' | 'shutdown';
  readonly error: unknown;
}

/** The events of latches, by name. */
export interface LatchEventTypes {
  countedDown: LatchCountedDown;
  opened: LatchOpened;
  timedOut: LatchTimedOut;
  failed: LatchFailed;
}

/** The channels of the latches. */
export const latchChannels: EventChannels<LatchEventTypes> = {
  countedDown: eventChannel('latch:counted-down'),
  opened: eventChannel('latch:opened'),
  timedOut: eventChannel('latch:timed-out'),
  failed: eventChannel('latch:failed'),
};
