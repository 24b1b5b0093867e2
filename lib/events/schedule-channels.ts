import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** An event of one scheduled job. */
export interface ScheduleEvent extends LockSource {
  /** The name of the job. */
  readonly name: string;
  /** The name of the job in `@ScheduledLock`; `undefined` for `ScheduledJobs.run`. */
  readonly template: string | undefined;
}

/** A run began. Exactly one of `succeeded` and `failed` follows, unless the process dies. */
export interface ScheduleStarted extends ScheduleEvent {
  /** Greater for each run of that name, in whichever process. */
  readonly fencingToken: number;
}

/** The run ended without an error, in time. */
export interface ScheduleSucceeded extends ScheduleEvent {
  readonly fencingToken: number;
  /** Milliseconds that the run took. */
  readonly took: number;
}

/** The run threw, or it had lost its lock before it ended, as after `atMostFor`. */
export interface ScheduleFailed extends ScheduleEvent {
  readonly fencingToken: number;
  /** Milliseconds that the run took. */
  readonly took: number;
  readonly error: unknown;
}

/** A call did not run: another process, or a call before in this one, has the name. */
export interface ScheduleSkipped extends ScheduleEvent {
  /** Milliseconds until the name is free at the latest. */
  readonly remaining: number;
}

/** A call did not run: the backend failed. */
export interface ScheduleUnavailable extends ScheduleEvent {
  readonly error: unknown;
}

/** The events of scheduled jobs, by name. */
export interface ScheduleEventTypes {
  started: ScheduleStarted;
  succeeded: ScheduleSucceeded;
  failed: ScheduleFailed;
  skipped: ScheduleSkipped;
  unavailable: ScheduleUnavailable;
}

/** The channels of the scheduled jobs. */
export const scheduleChannels: EventChannels<ScheduleEventTypes> = {
  started: eventChannel('schedule:started'),
  succeeded: eventChannel('schedule:succeeded'),
  failed: eventChannel('schedule:failed'),
  skipped: eventChannel('schedule:skipped'),
  unavailable: eventChannel('schedule:unavailable'),
};
