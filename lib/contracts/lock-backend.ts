import type { LockQueue, QueueMessage } from './lock-queue.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  KeepRequest,
  ListedNames,
  ListRequest,
  LockState,
  Minted,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from './lock-requests.js';
import type { Pending, StoreContext } from './store.js';

export type * from './lock-queue.js';
export type * from './lock-requests.js';
export type * from './store.js';

/** Where locks are kept: a connection, which modules may share. Each of them opens a store of its own there. */
export interface LockBackend {
  /** Its name in log lines and errors: `redis`, `memory`, ... */
  readonly name: string;
  readonly traits: LockTraits;

  /** Opens the store of one module. It asks nothing of the server yet. */
  open(module: ModuleContext): LockStore;

  /** Rejects when the backend cannot serve. */
  ping(): Promise<void>;

  /**
   * Why the store may drop locks that are held, as Redis does that may evict them: a line for each cause, with the
   * remedy. Health checks ask for it.
   */
  hazards?(): Promise<readonly string[]>;

  /**
   * Why a call failed with `error`, or got no answer: names the server, the cause and the remedy. Callers see it as the
   * cause of their error.
   */
  diagnose?(error?: unknown): Error | undefined;

  /**
   * Closes the connections that the backend itself opened, and no others. Called when the last of the modules that
   * share the backend stops.
   */
  close(): Promise<void>;
}

/** A module that opens a store: what the names of its locks begin with, and what the store tells it until `stop`. */
export interface ModuleContext extends StoreContext {
  /** The beginning of the tickets of the module, before a `:` and a number. */
  readonly process: string;

  /**
   * The store says that tickets no longer own their names, as when their session has ended; with the reason `taken`,
   * when they were released by force. Tickets of other modules do no harm.
   */
  readonly lost: (tickets: readonly string[], why: Error, reason?: 'expired' | 'taken') => void;

  /**
   * A connection has opened, the first time or again: the store may have restarted and lost its data, so that every
   * lock and permit that it granted is asked for at once. Every backend whose grants are rows or keys must say so; one
   * whose grants end with a session reports that by `lost`.
   */
  readonly connected: () => void;

  /** A message of the queue arrived. It may be late, repeated, or for an earlier ticket. */
  readonly message: (message: QueueMessage) => void;

  /**
   * No message arrives until `reconnected`. The module then keeps no name for itself that others may want; a backend
   * that does not say so lets them wait for as long as a lock lingers.
   */
  readonly interrupted: () => void;

  /** The channel of the queue was interrupted and is open again: messages may have been lost. */
  readonly reconnected: () => void;
}

/**
 * What a store must do to keep the locks of one module.
 *
 * A store decides who owns a name, and mints the fencing token in the same atomic step. It reports the lease that it
 * has granted, which may differ from the requested one. It neither waits for a name nor repeats a call: the layer
 * above waits, renews, keeps the deadlines and time-outs, and handles re-entry for all backends.
 *
 * Every call may be sent twice (a client library may resend after a reconnect) and must then do no harm. A call that
 * could not be carried out rejects with the error of the client library; "busy" and "not the owner" are answers. A call
 * that the store will go on to refuse rejects with a `BackendRefusal`. A call that throws counts as one that rejects.
 *
 * The clock of the store ends a lease. From then on nobody owns the name, also if no other ticket has taken it.
 */
export interface LockStore {
  /** The waiting queue of the store. Without one, each process tries again and again for all of its callers. */
  readonly queue?: LockQueue;

  /** Takes the name. One that this very ticket owns already counts as free: the answer to an earlier send was lost. */
  acquire(request: AcquireRequest): Pending<AcquireAnswer>;

  /**
   * Takes all of several names in one step, under one fencing token, or none. Each is then renewed and released by
   * itself. Without this method they are taken one by one, in order.
   */
  acquireSeveral?(request: AcquireSeveralRequest): Pending<AcquireAnswer>;

  /**
   * Makes each lease last for at least `ttl` from now, or for as long as the store can; never shortens one. Returns one
   * answer for each request, in their order. The answers settle independently: a slow or dead node must not delay those
   * of another.
   */
  renew(requests: readonly RenewRequest[]): readonly Pending<RenewAnswer>[];

  /** Frees the name if this ticket owns it. */
  release(request: ReleaseRequest): Pending<ReleaseAnswer>;

  /** Reserves further tokens for the ticket that owns the name; `null` when it no longer owns it. */
  mint(request: MintRequest): Pending<Minted | null>;

  /**
   * Makes the lease of the name end `rest` ms from now if this ticket owns it; never lengthens one. The ticket owns the
   * name until then, and the answer is `released`. Without this method the backend cannot do `minHold`.
   */
  keep?(request: KeepRequest): Pending<ReleaseAnswer>;

  /** `null` when the name has no owner. */
  inspect(request: NameRequest): Pending<LockState | null>;

  /**
   * Stores the label of the process for `ttl` ms, a whole number: `inspect` returns it for each ticket of that process.
   * A `ttl` of 0 removes it.
   */
  label?(label: string, ttl: number): Promise<void>;

  /**
   * Frees the name and returns its owner, or its readers; `null` when it had none. Without this method, `forceRelease`
   * is refused.
   */
  forceRelease?(request: NameRequest): Pending<string | readonly string[] | null>;

  /**
   * Makes a ticket that owns the name a reader of it, so that other readers come in. Its lease ends `ttl` ms from now,
   * whatever was left of that of the owner. Does nothing for a ticket that no longer owns it.
   *
   * A store with this method keeps read locks. To a ticket that asks with the mode `read` the name is granted beside
   * others that read, never beside an owner, and every request about it is answered as for an owner. While a ticket
   * that wants to own the name waits, tickets that ask to read wait behind it, and come in together after it. One that
   * asks no more, as after a crash, must not keep readers out for longer than a moment. Without this method,
   * `mode: 'read'` is refused.
   */
  downgrade?(request: RenewRequest): Pending<void>;

  /**
   * One page of the names that have an owner, without keeping other clients waiting. Rejects with a
   * `LockConfigError` for a cursor that it cannot have returned. Without this method, `list` is refused.
   */
  list?(request: ListRequest): Pending<ListedNames>;

  /**
   * Called once at the start of the module, even if the backend cannot be reached. Rejects if it cannot serve, with one
   * line that names the server, the cause and the remedy: with a `BackendRefusal` if that lasts until somebody mends
   * the cause. Reports what limits it without stopping it.
   */
  start?(): Promise<void>;

  /** The module has stopped, and wants to hear no more. The backend stays open for the others. */
  stop?(): void;
}

/** What a backend can do. Options that need more are refused. */
export interface LockTraits {
  /**
   * `ttl`: a grant ends by itself after its lease. `session`: it ends with the session of the process that took it, so
   * that what was lost must be released until the store confirms it.
   */
  readonly lease: 'ttl' | 'session';
  /**
   * `strict`: every grant's token is above all earlier ones of that name. `quorum`: as long as a majority of the nodes
   * keeps its data.
   */
  readonly fencing: 'strict' | 'quorum';
  /** The shortest lease (ms) that the store can grant; a shorter `ttl` is refused. */
  readonly leastLease: number;
  /**
   * Whether a renewal is on its way to the store when `renew` returns. Where it is not, as with a pool that opens a
   * connection first, the renewal of a short lease is answered before the holder runs: it may block the event loop.
   */
  readonly writesAtOnce?: boolean;
}
