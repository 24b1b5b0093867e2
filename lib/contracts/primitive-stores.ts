import type { EnqueueRequest, QueueAnswer } from './lock-queue.js';
import type { KeepRequest, ReleaseAnswer, TicketRequest } from './lock-requests.js';
import type { Pending } from './store.js';

/**
 * Where the primitives of one module keep their state: one store for each of them. The rules of `LockBackend` hold:
 * every call may be sent twice, and rejects with the error of the client library if it could not be carried out.
 */
export interface PrimitiveStores {
  readonly runs: RunRecords;
  readonly semaphores: SemaphoreStore;
  readonly latches: LatchStore;
  /** The results of idempotent methods. */
  readonly results: IdempotencyStore;
  readonly rateLimits: RateLimitStore;
  /** Ends what the stores opened themselves, such as a connection for messages. */
  close(): Promise<void>;
}

/** A `LockBackend` that can also keep the state of primitives, in the same place as the locks. */
export interface PrimitiveStoreProvider {
  /** Opens the stores of one module. The module closes them before it closes the backend. */
  openPrimitiveStores(prefix: string | undefined): PrimitiveStores;
}

/** Whether a lock backend can also keep the state of primitives. */
export function isPrimitiveStoreProvider(backend: object): backend is PrimitiveStoreProvider {
  return typeof (backend as Partial<PrimitiveStoreProvider>).openPrimitiveStores === 'function';
}

/**
 * What is known of an idempotency key.
 * - `running`: an attempt has begun. It may still run, or have died, failed or lost its lock.
 * - `value`, `undefined`: the result is kept; `payload` is the serialized value, if there is one.
 * - `error`: the method threw an error that is kept; `payload` describes it.
 * - `unkept`: the method ran, but its result could not be kept; `payload` says why.
 */
export type IdempotencyState = 'running' | 'value' | 'undefined' | 'error' | 'unkept';

/** What the store keeps under an idempotency key. */
export interface IdempotencyRecord {
  readonly state: IdempotencyState;
  /** The fencing token of the lock under which this attempt began. */
  readonly token: number;
  /** Counts the attempts that have begun, from 1. */
  readonly attempt: number;
  /** A digest of the request in hexadecimal digits; empty where none was given. */
  readonly fingerprint: string;
  readonly payload: Buffer;
}

/** An attempt begins. Its lock is held, with this fencing token. */
export interface BeginRequest {
  readonly key: string;
  readonly token: number;
  readonly fingerprint: string;
  /** Milliseconds for which the store remembers the attempt. */
  readonly ttl: number;
}

/** An attempt has ended, and its result is to be kept. */
export interface KeepResultRequest {
  readonly key: string;
  readonly record: Omit<IdempotencyRecord, 'payload'> & { readonly payload: string | Buffer };
  /** Milliseconds for which the store keeps the result. */
  readonly ttl: number;
  /** Whether to keep the result also if the store has forgotten the attempt. */
  readonly evenIfForgotten: boolean;
}

/** The attempt with that token did nothing, or the one that `enter` began for that ticket. */
export type ForgetAttemptRequest = { readonly key: string } & (
  { readonly token: number } | { readonly ticket: string }
);

/** A first request for a key: asks for its lock, and begins an attempt if that is granted at once. */
export interface EnterRequest extends Pick<BeginRequest, 'key' | 'fingerprint' | 'ttl'> {
  readonly lock: EnqueueRequest;
}

/**
 * - `answered`: the present record says it all: a result is kept, or the fingerprints differ. Nothing has changed.
 * - `granted`, with `begun`: the ticket owns the lock, and an attempt with its token has begun. Without `begun`, none
 *   has.
 * - `busy`: as `enqueue` of the lock.
 */
export type EnterAnswer =
  | { readonly status: 'answered'; readonly record: IdempotencyRecord }
  | (QueueAnswer & { readonly begun?: IdempotencyRecord });

/** An attempt has ended: its result is to be kept, and its lock freed. */
export interface LeaveRequest extends KeepResultRequest {
  readonly lock: KeepRequest;
}

/** What became of the lock, and whether the result is kept. */
export interface LeaveAnswer extends ReleaseAnswer {
  readonly kept: boolean;
}

/** Keeps the results of idempotent methods. Every entry has an expiry. */
export interface IdempotencyStore {
  read(key: string): Pending<IdempotencyRecord | null>;

  /**
   * Notes that an attempt begins, and answers what it has noted: a record with the token of the request. Answers the
   * present record instead, unchanged, if it is not `running`, if its fingerprint differs from that of the request (an
   * empty one fits any), or if its token is larger. A repeated request gets the same answer.
   */
  begin(request: BeginRequest): Pending<IdempotencyRecord>;

  /**
   * Keeps the result of an attempt. `false`, and nothing changes, if another attempt has kept its result, or if one
   * with a larger token has begun. A repeated request gets the same answer.
   */
  keep(request: KeepResultRequest): Pending<boolean>;

  /**
   * Takes back the begin of an attempt that did nothing: the key is as it was before it. Nothing changes unless the
   * record is `running` and of that attempt. Called once for each attempt.
   */
  forget(request: ForgetAttemptRequest): Pending<unknown>;

  /**
   * As `read`, `enqueue` of the lock, and `begin` with the token that it grants, in one step: the token is above that
   * of the record. A repeated request gets the same answer. Only of a store that also keeps the lock, together with
   * `leave`.
   */
  enter?(request: EnterRequest): Pending<EnterAnswer>;

  /**
   * As `keep`, and `release` of the lock in the same step, whether or not the result is kept. A repeated request
   * keeps the same, and finds the lock free.
   */
  leave?(request: LeaveRequest): Pending<LeaveAnswer>;
}

export interface DefineLatchRequest {
  readonly name: string;
  /** How many arrivals open the latch. */
  readonly count: number;
  /** How long (ms) the latch is kept after its definition or its last arrival. */
  readonly ttl: number;
}

export interface ArrivalRequest {
  readonly name: string;
  /** An arrival with the same id counts once. */
  readonly arrival: string;
}

export interface LatchState {
  readonly count: number;
  /** How many arrivals are still missing: 0 when the latch is open. */
  readonly remaining: number;
}

export interface LatchListener {
  readonly process: string;
  onOpen(name: string): void;
  /** Messages arrive from now on; some may have been lost. */
  onConnected(): void;
}

/** Keeps count-down latches. */
export interface LatchStore {
  /** Defines the latch if there is none; resolves to its state, which may have another count. */
  define(request: DefineLatchRequest): Pending<LatchState>;
  /** `undefined` if there is no such latch. */
  arrive(request: ArrivalRequest): Pending<LatchState | undefined>;
  /** `undefined` if there is no such latch. That process gets a message when it opens in the next 5 s. */
  look(name: string, process?: string): Pending<LatchState | undefined>;
  listen(listener: LatchListener): void;
  unlisten(process: string): void;
}

/** One limit as a store keeps it. Times are whole microseconds. */
export interface StoredLimit {
  /** Tells the limits of one key apart: the same for the same limit in every process. */
  readonly id: string;
  /** The time in which one unit comes back. */
  readonly interval: number;
  /** The time in which all units come back, when none is left: `interval` times the burst. */
  readonly capacity: number;
}

/** Asks for units of one key, of all its limits or of none. */
export interface TakeRequest {
  readonly key: string;
  readonly limits: readonly StoredLimit[];
  /** With fewer units left, the store takes none. */
  readonly least: number;
  /** The store takes up to this many: at least `least`. */
  readonly most: number;
}

export interface TakeAnswer {
  /** The units taken; 0 when there were fewer than `least`. */
  readonly granted: number;
  /** For each limit, in order: the microseconds until all of its units are back. */
  readonly used: readonly number[];
}

/** Counts one hit in a fixed window, and blocks the key when there are more than `limit`. Times in ms. */
export interface HitRequest {
  readonly key: string;
  /** The length of the window, which begins with its first hit. */
  readonly window: number;
  readonly limit: number;
  /** How long the key is blocked; 0: until the window ends. The next window begins after that. */
  readonly block: number;
}

export interface HitAnswer {
  /** Hits in the window; those while the key is blocked beyond it do not count. */
  readonly hits: number;
  /** Milliseconds until the window or the block ends. */
  readonly left: number;
  readonly blocked: boolean;
}

/** The counts of rate limits. A call that is sent twice counts twice: it allows fewer calls, never more. */
export interface RateLimitStore {
  take(request: TakeRequest): Pending<TakeAnswer>;
  /** As `used` of `TakeAnswer`, without taking. */
  peek(request: Pick<TakeRequest, 'key' | 'limits'>): Pending<readonly number[]>;
  /** Gives back all units of the limits. */
  reset(request: Pick<TakeRequest, 'key' | 'limits'>): Pending<unknown>;
  hit(request: HitRequest): Pending<HitAnswer>;
}

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

/** Asks for the name of a job, and records that its run began if it is granted at once. */
export interface EnterRunRequest extends Omit<RunRequest, 'token'> {
  readonly lock: EnqueueRequest;
}

/** As `enqueue` of the lock; `recorded`: the run is recorded, under the first of the tokens. */
export type EnterRunAnswer = QueueAnswer & { readonly recorded?: boolean };

/** A run has ended: it is recorded, and its name freed. */
export interface LeaveRunRequest extends EndRunRequest {
  /** `rest` is 0 to free the name now. */
  readonly lock: KeepRequest;
}

/** `recorded`: the end is recorded. Otherwise `end` records it, where the run knows how it ended. */
export interface LeaveRunAnswer extends ReleaseAnswer {
  readonly recorded: boolean;
}

/** The last run of each scheduled job. */
export interface RunRecords {
  begin(request: RunRequest): Pending<void>;
  /** The first end that arrives for a run counts. */
  end(request: EndRunRequest): Pending<void>;
  /** As `enqueue` of the lock and `begin` in one step. Only of a store that also keeps the lock, with `leave`. */
  enter?(request: EnterRunRequest): Pending<EnterRunAnswer>;
  /** The run that `enter` recorded for that ticket never began: the record is as it was before it. */
  forget?(request: TicketRequest): Pending<unknown>;
  /**
   * `keep` or `release` of the lock, and in the same step `end`, unless the ticket no longer owned the name.
   */
  leave?(request: LeaveRunRequest): Pending<LeaveRunAnswer>;
  /** `null` if the store knows no run of that name. */
  last(name: string): Pending<RunRecord | null>;
}

/** How long (ms) a store keeps the record of a run: a job that runs once a year still shows its last run. */
export const RECORD_TTL = 400 * 24 * 60 * 60 * 1_000;

/** One call that wants permits, or has them. The ticket is `process:number`, and is never reused. */
export interface PermitRequest {
  readonly name: string;
  readonly ticket: string;
  /** How many permits the ticket stands for: all or none. */
  readonly count: number;
}

export interface AcquirePermitsRequest extends PermitRequest {
  /** How many permits the semaphore has from now on. */
  readonly permits: number;
  /** The lease (ms) of a grant at once. A waiter is granted a claim instead. */
  readonly ttl: number;
  /** Whether the ticket enters the queue if it is not granted at once. */
  readonly queues: boolean;
  /** From now on, every fencing token of the semaphore must be at least this: a store may have lost the last one. */
  readonly leastToken?: number;
}

export interface RenewPermitsRequest extends PermitRequest {
  readonly ttl: number;
}

/** The heartbeat of one process that has waiters at a semaphore. */
export interface SemaphoreBeatRequest {
  readonly name: string;
  readonly process: string;
  /** The number of permits that counts if the store keeps none. */
  readonly permits: number;
  /** The waiters whose state is asked for, in order of arrival. */
  readonly waiters: readonly Pick<PermitRequest, 'ticket' | 'count'>[];
}

export interface PermitsGranted {
  readonly status: 'granted';
  readonly fencingToken: number;
  /** How many fencing tokens are reserved for it: `fencingToken` and those that follow. */
  readonly tokens: number;
  /** Milliseconds of lease left. */
  readonly remaining: number;
}

/** What a store tells those who wait. */
export interface SemaphoreOutlook {
  /** Milliseconds until the next lease of a holder ends; `Infinity` if nobody holds a permit. */
  readonly nextEnd: number;
  /** The last fencing token of the semaphore that is reserved, or 0: each later grant has higher ones. */
  readonly lastToken: number;
}

export interface PermitsBusy extends SemaphoreOutlook {
  readonly status: 'busy';
}

export type AcquirePermitsAnswer = PermitsGranted | PermitsBusy;

/** `gone`: the ticket neither waits nor has permits; the store may have lost its data. */
export type WaiterState = PermitsGranted | { readonly status: 'waiting' | 'gone' };

export interface SemaphoreBeatAnswer extends SemaphoreOutlook {
  /** One for each waiter of the request. */
  readonly states: readonly WaiterState[];
}

export interface PermitReleaseAnswer {
  /** Whether the ticket had permits whose lease had not ended. */
  readonly live: boolean;
  /** Whether the request may have been carried out twice, so that `live` tells nothing. */
  readonly resent: boolean;
}

export interface SemaphoreUse {
  /** The number of permits that the last call gave; `undefined` if the store keeps none any more. */
  readonly permits: number | undefined;
  readonly taken: number;
}

/** What a process learns without asking. */
export interface SemaphoreListener {
  readonly process: string;
  /** A waiter has been granted its permits, with a claim of `remaining` ms from then. May arrive at any time. */
  onGrant(ticket: string, grant: Omit<PermitsGranted, 'status'>): void;
  /** Messages arrive from now on; some may have been lost. */
  onConnected(): void;
}

/**
 * Keeps counting semaphores: at most `permits` unexpired permits of each name, and the queue of those that wait for
 * them. The queue is strict: a waiter that wants several permits holds up those behind it until they are free.
 */
export interface SemaphoreStore {
  acquire(request: AcquirePermitsRequest): Pending<AcquirePermitsAnswer>;
  /** Resolves to the ms left, or to `undefined` if the ticket has no permits any more. Never shortens a lease. */
  renew(request: RenewPermitsRequest): Pending<number | undefined>;
  /** Also takes a waiter out of the queue. Grants what becomes free in the same step. */
  release(request: PermitRequest): Pending<PermitReleaseAnswer>;
  beat(request: SemaphoreBeatRequest): Pending<SemaphoreBeatAnswer>;
  use(name: string): Pending<SemaphoreUse>;
  listen(listener: SemaphoreListener): void;
  unlisten(process: string): void;
}
