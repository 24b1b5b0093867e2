import type { Pending } from '../pending.js';

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
