import { Inject, Injectable } from '@nestjs/common';
import { Subject, type Observable } from 'rxjs';
import type { EnqueueRequest, QueueAnswer } from '../../contracts/lock-queue.js';
import {
  isPrimitiveStoreProvider,
  type EnterRunRequest,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../contracts/primitive-stores.js';
import type { Pending } from '../../contracts/store.js';
import { LockBackendError, LockTimeoutError } from '../../errors/lock-errors.js';
import { scheduleChannels } from '../../events/schedule-channels.js';
import { isThrown, messageOf } from '../../errors/limited-log.js';
import { HeldLock } from '../../lock/hold/held-lock.js';
import type { Lock } from '../../lock/hold/lock.js';
import type { FirstRequest } from '../../lock/line/caller.js';
import { LockService } from '../../lock/lock.service.js';
import { primitiveOption } from '../../options/option-checks.js';
import { PrimitiveRuntime, type PrimitiveHome } from '../runtime.js';
import { scheduleLockName, scheduleOf, type Schedule, type ScheduleOptions } from './schedule-options.js';

/**
 * Runs jobs that the schedulers of all machines start, each on one machine only. `@ScheduledLock` uses it.
 *
 * `atMostFor` and `atLeastFor` have the meaning that ShedLock gives them (https://github.com/lukas-krecan/ShedLock).
 */
@Injectable()
export class ScheduledJobs {
  /** What happens in this process at each tick; completes when the application ends. */
  readonly events: Observable<ScheduledJobEvent>;
  private readonly subject = new Subject<ScheduledJobEvent>();
  private readonly recorder: RunRecorder;
  /** By lock and fencing token. */
  private readonly runs = new Map<string, Run>();

  /** @internal */
  constructor(
    @Inject(LockService) private readonly locks: LockService,
    @Inject(PrimitiveRuntime) private readonly runtime: PrimitiveRuntime,
  ) {
    this.events = this.subject.asObservable();
    this.recorder = new RunRecorder(runtime);
    runtime.backends.whenStopping(() => this.stop());
  }

  /**
   * Runs `body` unless the name is taken; never waits. Resolves to its result, and to `undefined` where it was skipped.
   * A call of the same name inside `body` runs as a part of it.
   *
   * The signal of the lock aborts at `atMostFor`; `lock.extend()` gives the run more time.
   *
   * @throws LockLostError when the run ended after `atMostFor`, or its lock was taken away; how much took effect is
   * unknown
   * @throws LockBackendError when the backend fails: `body` did not run
   * @throws PrimitiveKeyError, PrimitiveConfigError for a name or options that it, or the backend, cannot take
   */
  async run<T>(name: string, options: ScheduleOptions, body: (lock: Lock) => Promise<T>): Promise<T | undefined> {
    const schedule = scheduleOf(name, options);
    if (typeof body !== 'function') throw primitiveOption.refused('body', body, 'the function that is the job');
    this.requireKeep(schedule);
    let began = false;
    let run: Run | undefined;
    const entrance = this.recorder.entranceOf(schedule);
    const within = (lock: Lock): Promise<T> => {
      began = true;
      // Re-entry keeps the fencing token: a nested call is a part of the run.
      if (this.runs.has(runKey(schedule, lock))) return body(lock);
      run = this.begin(schedule, lock, entrance);
      return this.inRun(run, body, lock);
    };
    try {
      const result = await this.locks.withLock(schedule.lockName, schedule.lockOptions, within, entrance);
      if (run) await this.end(run, (ended) => ({ kind: 'succeeded', ...ended }));
      return result;
    } catch (error) {
      if (run) await this.end(run, (ended) => ({ kind: 'failed', ...ended, error }));
      if (began) throw error;
      if (entrance) void this.recorder.forget(schedule, entrance);
      if (isThrown(error, LockBackendError)) this.tell(schedule, { kind: 'unavailable', name, error });
      if (!isThrown(error, LockTimeoutError)) throw error;
      this.tell(schedule, { kind: 'skipped', name, remaining: error.remaining });
      return undefined;
    }
  }

  /**
   * When the job last began and ended in any process, and whether it succeeded; `null` if the store knows no run. Kept
   * for 400 days after the last run, where the lock is kept: in Redis or in memory.
   *
   * @throws PrimitiveConfigError for a backend that keeps no records
   * @throws PrimitiveBackendError when the backend fails
   */
  async lastRun(name: string, options: Pick<ScheduleOptions, 'backend'> = {}): Promise<LastRun | null> {
    return this.recorder.last(primitiveOption.backendOf('lastRun', options), name, scheduleLockName(name));
  }

  /** Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  private requireKeep({ lockOptions: { backend, minHold } }: Schedule): void {
    const { backends } = this.runtime;
    const { backend: kept, store } = backends.ofCall(backend).calls;
    const remedy = `0: backend "${kept.name}" cannot keep a name whose holder has ended`;
    primitiveOption.require(minHold === 0 || store.keep !== undefined, 'atLeastFor', minHold, remedy);
  }

  /** After the shutdown has ended all holds, and before it closes the connections. */
  private async stop(): Promise<void> {
    const ending = Array.from(this.runs.values()).filter(({ took }) => took !== undefined);
    await Promise.all(ending.map(({ recorded }) => recorded));
    this.subject.complete();
  }

  private begin(schedule: Schedule, lock: Lock, entrance: RunEntrance | undefined): Run {
    const { fencingToken } = lock;
    const run = new Run(schedule, fencingToken);
    this.runs.set(runKey(schedule, lock), run);
    if (entrance?.recorded !== fencingToken) void this.recorder.began(run);
    this.tell(schedule, { kind: 'started', name: schedule.name, fencingToken });
    return run;
  }

  private async inRun<T>(run: Run, body: (lock: Lock) => Promise<T>, lock: Lock): Promise<T> {
    let succeeded = false;
    try {
      const result = await body(lock);
      succeeded = true;
      return result;
    } finally {
      run.took = run.age;
      await this.recorder.left(run, lock, succeeded);
    }
  }

  /** Unless it was recorded with the release: after it, so that recording the end delays no other process. */
  private async end(
    run: Run,
    eventOf: (ended: { name: string; fencingToken: number; took: number }) => ScheduledJobEvent,
  ): Promise<void> {
    const { schedule, fencingToken, took = run.age } = run;
    const event = eventOf({ name: schedule.name, fencingToken, took });
    if (!run.endRecorded) await this.recorder.ended(run, run.age, event.kind === 'succeeded');
    this.runs.delete(runKey(schedule, run));
    this.tell(schedule, event);
    run.settle();
  }

  private tell(schedule: Schedule, event: ScheduledJobEvent): void {
    this.subject.next(event);
    if (!scheduleChannels[event.kind].hasSubscribers) return;
    const { backends } = this.runtime;
    const { backend = backends.options.defaults.backend } = schedule.lockOptions;
    const { source } = backends.get(backend).calls;
    const { kind, ...details } = event;
    const channel = scheduleChannels[kind] as { publish(event: object): void };
    channel.publish({ ...details, template: schedule.template, backend: source.backend, label: source.label });
  }
}

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

/** A run of this process, from its begin until its end is recorded. */
class Run {
  readonly startedAt = performance.now();
  /** Milliseconds that `body` took; `undefined` until it has settled. */
  took: number | undefined;
  endRecorded = false;
  settle!: () => void;
  /** Resolves when its end is recorded. */
  readonly recorded = new Promise<void>((resolve) => (this.settle = resolve));

  constructor(
    readonly schedule: Schedule,
    readonly fencingToken: number,
  ) {}

  /** Milliseconds since it began. */
  get age(): number {
    return performance.now() - this.startedAt;
  }
}

function runKey({ lockName, lockOptions }: Schedule, { fencingToken }: Pick<Lock, 'fencingToken'>): string {
  return `${lockOptions.backend ?? ''}\u0000${fencingToken}\u0000${lockName}`;
}

/** The first request of a run: asks for the name, and records the run if it is granted at once. */
class RunEntrance implements FirstRequest {
  /** The ticket that asks; `undefined` until the request is sent. */
  ticket: string | undefined;
  answered = false;
  /** The token under which the run is recorded. */
  recorded: number | undefined;

  constructor(
    private readonly enter: NonNullable<RunRecords['enter']>,
    private readonly run: Omit<EnterRunRequest, 'lock'>,
  ) {}

  async enqueue(lock: EnqueueRequest): Promise<QueueAnswer> {
    this.ticket = lock.ticket;
    const answer = await this.enter({ ...this.run, lock });
    this.answered = true;
    if (answer.status === 'granted' && answer.recorded) this.recorded = answer.tokens.first;
    return answer;
  }
}

/** For errors: who needs a backend that keeps primitives. */
const RECORDS = 'Records of scheduled jobs';

/** Writes and reads the records of runs, where the backend keeps them. */
class RunRecorder {
  constructor(private readonly runtime: PrimitiveRuntime) {}

  /** Never rejects: a record that cannot be written must not fail the run. */
  began(run: Run): Promise<void> {
    return this.write(run, (records, request) => records.begin(request));
  }

  /** `undefined` where the store does not keep the lock and the records. */
  entranceOf({ lockName, atMostFor, lockOptions }: Schedule): RunEntrance | undefined {
    const runs = this.home(lockOptions.backend)?.stores.runs;
    if (!runs?.enter) return undefined;
    const by = this.runtime.backends.options.label;
    return new RunEntrance((request) => runs.enter!(request), { name: lockName, by, atMostFor });
  }

  /** Never rejects: the run of this first request did not begin, and may be recorded all the same. */
  async forget({ name, lockName, lockOptions }: Schedule, { ticket, answered, recorded }: RunEntrance): Promise<void> {
    const home = this.home(lockOptions.backend);
    if (!home || ticket === undefined || (answered && recorded === undefined)) return;
    const { calls, stores } = home;
    const request = { name: lockName, ticket };
    await this.warning(calls.run('record of a run of', name, () => stores.runs.forget?.(request) ?? Promise.resolve()));
  }

  /** Never rejects: records the end of the run and frees its name in one step, where the store can do that. */
  async left(run: Run, lock: Lock, succeeded: boolean): Promise<void> {
    const { schedule, fencingToken } = run;
    const { lockName, atMostFor, lockOptions } = schedule;
    const runs = this.home(lockOptions.backend)?.stores.runs;
    if (!runs?.leave || !(lock instanceof HeldLock)) return;
    const by = this.runtime.backends.options.label;
    const took = Math.round(run.took ?? run.age);
    const end = { name: lockName, token: fencingToken, by, atMostFor, took, succeeded };
    await lock.endBy(async (names) => {
      const answer = await runs.leave!({ ...end, lock: names });
      run.endRecorded = answer.recorded;
      return answer;
    });
  }

  /** As `began`; `took` in ms. */
  ended(run: Run, took: number, succeeded: boolean): Promise<void> {
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
    { schedule, fencingToken }: Run,
    write: (records: RunRecords, request: RunRequest) => Pending<void>,
  ): Promise<void> {
    const { name, lockName, atMostFor, lockOptions } = schedule;
    const home = this.home(lockOptions.backend);
    if (!home) return;
    const { calls, stores } = home;
    const request = { name: lockName, token: fencingToken, by: this.runtime.backends.options.label, atMostFor };
    await this.warning(calls.run('record of a run of', name, () => write(stores.runs, request)));
  }

  private async warning(recorded: Promise<unknown>): Promise<void> {
    try {
      await recorded;
    } catch (error) {
      this.runtime.backends.logger.warn(`${messageOf(error)}; lastRun() may not show this run as it was`);
    }
  }

  /** `undefined` for a backend that keeps no records. */
  private home(name: string | undefined): PrimitiveHome | undefined {
    const backend = this.chosen(name);
    const keeps = isPrimitiveStoreProvider(this.runtime.backends.get(backend).calls.backend);
    return keeps ? this.runtime.home(RECORDS, backend) : undefined;
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
