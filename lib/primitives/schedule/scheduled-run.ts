import type { LockBackendError } from '../../errors/lock-errors.js';

/** What happened at a tick of a scheduled job in this process. */
export type ScheduledJobEvent =
  | {
      /** The run began. */
      readonly kind: 'started';
      readonly name: string;
      /** Greater for each run of that name, in whichever process. */
      readonly fencingToken: number;
    }
  | {
      /** The run ended without an error, in time. */
      readonly kind: 'succeeded';
      readonly name: string;
      readonly fencingToken: number;
      /** Milliseconds that the run took. */
      readonly took: number;
    }
  | {
      /** The run threw, or it had lost its lock before it ended, as after `atMostFor`. */
      readonly kind: 'failed';
      readonly name: string;
      readonly fencingToken: number;
      /** Milliseconds that the run took. */
      readonly took: number;
      readonly error: unknown;
    }
  | {
      /** It did not run: another process, or a call before in this one, has the name. */
      readonly kind: 'skipped';
      readonly name: string;
      /** Milliseconds until the name is free at the latest. */
      readonly remaining: number;
    }
  | {
      /** It did not run: the backend failed. The call rejects with the same error. */
      readonly kind: 'unavailable';
      readonly name: string;
      readonly error: LockBackendError;
    };

/** The last run of a scheduled job in any process. Times are those of the store's clock. */
export interface LastRun {
  readonly name: string;
  readonly startedAt: Date;
  /** `null` while no end is recorded. */
  readonly endedAt: Date | null;
  /**
   * - `running`: it began, and `atMostFor` has not passed. The process may have died since.
   * - `succeeded`, `failed`: how it ended.
   * - `unknown`: `atMostFor` has passed without a record of its end. The process died, or could not reach the store.
   */
  readonly outcome: 'running' | 'succeeded' | 'failed' | 'unknown';
  /** The `label` of the application that ran it: host name and process id by default. */
  readonly by: string;
  readonly fencingToken: number;
}
