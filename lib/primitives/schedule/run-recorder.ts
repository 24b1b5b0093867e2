import {
  isPrimitiveStoreProvider,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../contracts/primitive-stores.js';
import type { Pending } from '../../contracts/store.js';
import type { PrimitiveRuntime } from '../runtime.js';
import type { Schedule } from './schedule-options.js';
import type { LastRun } from './scheduled-jobs.js';

/** For errors: who needs a backend that keeps primitives. */
const RECORDS = 'Records of scheduled jobs';

interface Recorded {
  readonly schedule: Schedule;
  readonly fencingToken: number;
}

/** Writes and reads the records of runs, where the backend keeps them. */
export class RunRecorder {
  constructor(private readonly runtime: PrimitiveRuntime) {}

  /** Never rejects: a record that cannot be written must not fail the run. */
  began(run: Recorded): Promise<void> {
    return this.write(run, (records, request) => records.begin(request));
  }

  /** As `began`; `took` in ms. */
  ended(run: Recorded, took: number, succeeded: boolean): Promise<void> {
    return this.write(run, (records, request) => records.end({ ...request, took: Math.round(took), succeeded }));
  }

  /**
   * @throws PrimitiveConfigError where the backend keeps no records
   * @throws PrimitiveBackendError when the backend fails
   */
  async last(backend: string | undefined, name: string, lockName: string): Promise<LastRun | null> {
    const { calls, stores } = this.runtime.home(RECORDS, this.chosen(backend));
    const record = await calls.run('read of the last run of', name, () => stores.runs.last(lockName));
    return record && lastRunOf(name, record);
  }

  private async write(
    { schedule, fencingToken }: Recorded,
    write: (records: RunRecords, request: RunRequest) => Pending<void>,
  ): Promise<void> {
    const { name, lockName, atMostFor, lockOptions } = schedule;
    const { backends } = this.runtime;
    const backend = this.chosen(lockOptions.backend);
    if (!isPrimitiveStoreProvider(backends.get(backend).calls.backend)) return;
    const request = { name: lockName, token: fencingToken, by: backends.options.label, atMostFor };
    try {
      const { calls, stores } = this.runtime.home(RECORDS, backend);
      await calls.run('record of a run of', name, () => write(stores.runs, request));
    } catch (error) {
      backends.logger.warn(`${(error as Error).message}; lastRun() may not show this run as it was`);
    }
  }

  private chosen(backend: string | undefined): string | undefined {
    return backend ?? this.runtime.backends.options.defaults.backend;
  }
}

function lastRunOf(name: string, { token, by, startedAt, end, overdue }: RunRecord): LastRun {
  return {
    name,
    startedAt: new Date(startedAt),
    endedAt: end ? new Date(end.at) : null,
    outcome: outcomeOf(end, overdue),
    by,
    fencingToken: token,
  };
}

function outcomeOf(end: RunRecord['end'], overdue: boolean): LastRun['outcome'] {
  if (end) return end.succeeded ? 'succeeded' : 'failed';
  return overdue ? 'unknown' : 'running';
}
