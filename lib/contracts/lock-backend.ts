import type { LockQueue } from './lock-queue.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LabelRequest,
  LockState,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
} from './lock-requests.js';
import type { Pending } from './pending.js';
import type { StartRequest } from './start-request.js';

export type * from './lock-queue.js';
export type * from './lock-requests.js';
export type * from './pending.js';
export type * from './start-request.js';

/**
 * What a store must do to keep locks.
 *
 * A backend decides who owns a name, and mints the fencing token in the same atomic step. It keeps no lease of its own,
 * never waits, never retries and starts no timer: waiting, renewal, deadlines, time-outs and re-entry are done above
 * it, once for all backends.
 *
 * Every call may be sent twice (a client library may resend after a reconnect) and must then do no harm. A call that
 * could not be carried out rejects with the error of the client library; "busy" and "not the owner" are answers.
 */
export interface LockBackend {
  /** How messages name it: `redis`, `memory`, ... */
  readonly name: string;
  readonly capabilities: LockBackendCapabilities;
  /** The waiting queue of the backend; present with `capabilities.serverQueue`. */
  readonly queue?: LockQueue;

  /**
   * Takes all names or none. A name that this very ticket owns already counts as free: the answer to an earlier send
   * was lost.
   */
  acquire(request: AcquireRequest): Promise<AcquireAnswer>;

  /**
   * Lets each lease run for at least `ttl` from now; never shortens one. Returns one promise for each request, in their
   * order, which settle independently: a node that is slow or dead must not delay the answers of another.
   */
  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[];

  /** Frees those of the names that this ticket owns, and no others. */
  release(request: TicketRequest): Pending<ReleaseAnswer>;

  /**
   * Lets the lease of those of the names that this ticket owns end `rest` ms from now; never lengthens one. The ticket
   * owns them until then, and the answer is `released`. Without this method the backend cannot do `minHold`.
   */
  keep?(request: KeepRequest): Pending<ReleaseAnswer>;

  /** `null` when the name has no owner. */
  inspect(request: NameRequest): Promise<LockState | null>;

  /**
   * Stores the label of a process for `ttl` ms: `inspect` returns it for each ticket of that process. A `ttl` of 0
   * removes it.
   */
  label?(request: LabelRequest): Promise<void>;

  /** Frees the name and returns its owner; `null` when it had none. */
  forceRelease(request: NameRequest): Promise<string | null>;

  /**
   * Calls `listener` from now until `close` whenever a connection opens, the first time or again: the store may have
   * restarted and lost its data. Returns what ends that before, for a module that stops while others go on.
   */
  whenConnected?(listener: () => void): (() => void) | void;

  /**
   * Called once by each module at start-up, also while the backend is away. Rejects if the backend cannot serve, with
   * one line that names the server, the cause and the remedy; reports what limits it without stopping it.
   */
  start?(request: StartRequest): Promise<void>;

  /** Rejects when the backend cannot serve. */
  ping(): Promise<void>;

  /**
   * Why a call failed with `error`, or got no answer: names the server, the cause and the remedy. Callers see it as the
   * cause of their error.
   */
  diagnose?(error?: unknown): Error | undefined;

  /**
   * Closes the connections that the backend itself opened, and no others. Called when the last of the modules that share
   * the backend stops.
   */
  close(): Promise<void>;
}

/** What a backend can do. Options that need more are refused. */
export interface LockBackendCapabilities {
  /** `ttl`: a grant ends by itself after its lease. `session`: it ends with the connection that took it. */
  readonly lease: 'ttl' | 'session';
  /**
   * `strict`: every grant's token is above all earlier ones of that name. `quorum`: as long as a majority of the nodes
   * keeps its data.
   */
  readonly fencing: 'strict' | 'quorum';
  /** Whether a waiter gets a message when its name becomes free; otherwise it tries again. */
  readonly push: boolean;
  /** Whether several names can be taken in one step. */
  readonly severalKeys: boolean;
  /** Whether the backend keeps a queue of waiting tickets. */
  readonly serverQueue: boolean;
}
