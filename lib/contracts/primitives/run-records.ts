import type { Pending } from '../pending.js';

/** One run of a scheduled job, by the process that runs it. */
export interface RunRequest {
  readonly name: string;
  /** The fencing token of the run. A run with a smaller token never replaces one with a greater token. */
  readonly token: number;
  /** The label of the process. */
  readonly by: string;
  /** How long the run may last: whole milliseconds. */
  readonly atMostFor: number;
}

/** The end of a run. The store records the begin, too, if it does not know the run. */
export interface EndRunRequest extends RunRequest {
  /** Whole milliseconds since the run began. */
  readonly took: number;
  readonly succeeded: boolean;
}

/** The last run of a job, as the store knows it. Times are in ms since 1970, by the clock of the store. */
export interface RunRecord {
  readonly token: number;
  readonly by: string;
  readonly startedAt: number;
  /** `undefined` while no end is recorded. */
  readonly end: { readonly at: number; readonly succeeded: boolean } | undefined;
  /** Whether `atMostFor` has passed since the begin. */
  readonly overdue: boolean;
}

/** The last run of each scheduled job. */
export interface RunRecords {
  begin(request: RunRequest): Pending<void>;
  /** The first end that arrives for a run counts. */
  end(request: EndRunRequest): Pending<void>;
  /** `null` if the store knows no run of that name. */
  last(name: string): Pending<RunRecord | null>;
}

/** How long (ms) a store keeps the record of a run: a job that runs once a year still shows its last run. */
export const RECORD_TTL = 400 * 24 * 60 * 60 * 1_000;
