import type { Notice, StartRequest } from './start-request.js';
import type { Pending } from './pending.js';

export type { Notice, Pending, StartRequest };

/**
 * The contract between a lock and whatever keeps it.
 *
 * A backend decides who owns a name, and mints the fencing token in the same atomic step. It keeps no lease of its own,
 * never waits, never retries and starts no timer: waiting, renewal, deadlines, time-outs and re-entry are done above
 * it, once for all backends.
 *
 * Every call may be sent twice (a client library may resend after a reconnect) and must then do no harm. A call that
 * could not be carried out rejects with whatever the client library says; "busy" and "not yours" are answers.
 */
export interface LockBackend {
  /** What messages call it: `redis`, `memory`, ... */
  readonly name: string;
  readonly capabilities: LockBackendCapabilities;
  /** The waiting queue of the backend; present with `capabilities.serverQueue`. */
  readonly queue?: LockQueue;

  /**
   * Takes all names or none. A name that this very ticket owns already counts as free (the answer to an earlier send
   * was lost).
   */
  acquire(request: AcquireRequest): Promise<AcquireAnswer>;

  /**
   * Lets each lease run for at least `ttl` from now; never shortens one. One answer for each request, in their order,
   * and each settles by itself: a node that is slow or dead must not keep back the answers of another.
   */
  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[];

  /** Frees those of the names that this ticket owns, and no others. */
  release(request: TicketRequest): Pending<ReleaseAnswer>;

  /**
   * Lets the lease of those of the names that this ticket owns end `rest` ms from now; never lengthens one. They stay
   * owned by it until then, and answered as `released`. A backend without it cannot be asked for `minHold`.
   */
  keep?(request: KeepRequest): Pending<ReleaseAnswer>;

  /** `null` when nobody owns the name. */
  inspect(request: NameRequest): Promise<LockState | null>;

  /**
   * Keeps who a process is for `ttl` ms, which `inspect` then says of each ticket of it; with a `ttl` of 0, forgets it.
   */
  label?(request: LabelRequest): Promise<void>;

  /** Frees the name, and answers who owned it; `null` when nobody did. */
  forceRelease(request: NameRequest): Promise<string | null>;

  /**
   * From now until `close`, calls `listener` whenever a connection is there, again or for the first time: the store may
   * have restarted, and have lost what it kept.
   */
  whenConnected?(listener: () => void): void;

  /**
   * Called by each module at start-up, once, also while the backend is away. Rejects when it cannot serve, with one
   * line that names the server, the cause and the remedy; reports what it can serve with all the same.
   */
  start?(request: StartRequest): Promise<void>;

  /** Rejects when the backend cannot serve. */
  ping(): Promise<void>;

  /**
   * Why a call failed with `error`, or got no answer: names the server, the cause and the remedy; it is the cause of
   * what callers see.
   */
  diagnose?(error?: unknown): Error | undefined;

  /** Closes the connections that the backend itself opened, and no others. */
  close(): Promise<void>;
}

/** What a backend can do. Options that need more than it can are refused. */
export interface LockBackendCapabilities {
  /** `ttl`: a grant ends by itself after its lease. `session`: it ends with the connection that took it. */
  readonly lease: 'ttl' | 'session';
  /** `strict`: every grant's token is above all earlier ones of that name. `quorum`: as far as a majority survives. */
  readonly fencing: 'strict' | 'quorum';
  /** Whether a waiter gets a message when its name falls free; otherwise it tries again. */
  readonly push: boolean;
  /** Whether several names can be taken in one step. */
  readonly severalKeys: boolean;
  /** Whether the backend keeps the waiters in a queue of its own. */
  readonly serverQueue: boolean;
}

/** One name, as `inspect` and `forceRelease` get it. */
export interface NameRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  readonly name: string;
}

/** Who a process is. */
export interface LabelRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** What the tickets of the process begin with, before a `:` and a number. */
  readonly process: string;
  readonly label: string;
  /** Milliseconds, whole. */
  readonly ttl: number;
}

/** Names and the ticket that owns or is to own them. */
export interface TicketRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** Sorted, without duplicates, at least one. */
  readonly names: readonly string[];
  /** Identifies one try of one caller; never used again after it. It is the owner that other clients see. */
  readonly ticket: string;
}

/** Asks for the names, all or none. */
export interface AcquireRequest extends TicketRequest {
  /** Milliseconds of lease from the moment of the grant, whole. */
  readonly ttl: number;
  /** The fencing token must not be below this. */
  readonly leastToken?: number;
}

/** Asks for a longer lease. */
export interface RenewRequest extends TicketRequest {
  /** Milliseconds of lease from the moment of the renewal, whole. */
  readonly ttl: number;
}

/** Gives names back that are to stay taken for a while. */
export interface KeepRequest extends TicketRequest {
  /** Milliseconds from the moment of the request, whole. */
  readonly rest: number;
}

/** Granted, with its fencing token; or busy, with what is known of the holder. */
export type AcquireAnswer =
  | { readonly granted: true; readonly fencingToken: number }
  | {
      readonly granted: false;
      /** The first name found taken, its owner, and the ms left of that lease (`Infinity`: no expiry). */
      readonly name: string;
      readonly owner: string;
      readonly remaining: number;
    };

/**
 * `remaining`: ms of lease from the renewal on, at least the `ttl` asked for. `waiting`: how many wait in the backend's
 * queue.
 */
export type RenewAnswer =
  | { readonly status: 'renewed'; readonly remaining: number; readonly waiting?: number }
  | { readonly status: 'not-owner' };

/**
 * `released`: all names were ours and are free now. `gone`: one or more were owned by nobody. `taken`: one or more were
 * owned by somebody else. `resent`: the client library may have sent the request more than once, so that `gone` or
 * `taken` may be our own doing.
 */
export interface ReleaseAnswer {
  readonly status: 'released' | 'gone' | 'taken';
  readonly resent: boolean;
}

/** Who owns a name. */
export interface LockState {
  readonly owner: string;
  /** Who the process of the owner is, where it said so. */
  readonly label?: string;
  /** Milliseconds left of the lease; `Infinity` where it has no expiry. */
  readonly ttl: number;
  /**
   * The newest token issued for this name, or reserved for the holders of one process; `null` when there is none, as
   * for a key that a foreign client set.
   */
  readonly fencingToken: number | null;
  /** How many wait for it in the backend's own queue; 0 where it keeps none. */
  readonly waiting: number;
}

/**
 * Waiters of different processes in order of arrival, kept at the backend: whoever releases gives the lock to the first
 * live one in the same atomic step, and then tells its process. Safe against messages and answers that are late, lost
 * or repeated, by the rules of docs/protocol.md.
 */
export interface LockQueue {
  /** Opens the channel of this process, on which messages come. Rejects when it cannot be opened. */
  listen(listener: QueueListener): Promise<void>;

  /**
   * Takes the name if it is free and nobody waits for it; else waits in the queue, or answers at once without a
   * `claim`. A ticket that owns the name is granted it again; one that waits stays where it is.
   */
  enqueue(request: EnqueueRequest): Pending<QueueAnswer>;

  /** Says that a waiter lives. It never queues a ticket: `gone` when it does not wait any more. */
  beat(request: WaiterRequest): Promise<QueueAnswer | { readonly status: 'gone' }>;

  /** Passes the name to the first who waits, and queues another ticket of this process behind the others. */
  requeue(request: RequeueRequest): Promise<QueueAnswer | { readonly status: 'not-owner'; readonly resent: boolean }>;

  /** Reserves further tokens for the process that owns the name; `null` when it does not any more. */
  mint(request: WaiterRequest & { readonly leastToken: number }): Promise<TokenRange | null>;
}

/** The process that listens, and what it does with a message. */
export interface QueueListener {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** What the tickets of this process begin with, before a `:` and a number. */
  readonly process: string;
  /** A message came. It may be late, repeated, or of an earlier ticket. */
  onMessage(message: QueueMessage): void;
  /** The channel was cut and is open again: messages may have been lost. */
  onReconnect(): void;
}

/** `grant`: a waiter owns the name now. `wanted`: another process waits for it. `revoked`: it was released by force.
 * `ends`: the lease of the owner ends sooner than the first waiter was told. */
export type QueueMessage =
  | {
      readonly kind: 'grant';
      readonly ticket: string;
      readonly name: string;
      readonly tokens: TokenRange;
      /** Milliseconds of lease from the moment of the grant. */
      readonly claim: number;
      /** How many wait behind it. */
      readonly waiting: number;
    }
  | { readonly kind: 'wanted'; readonly ticket: string; readonly name: string }
  | { readonly kind: 'revoked'; readonly ticket: string }
  | {
      readonly kind: 'ends';
      readonly ticket: string;
      readonly name: string;
      /** Milliseconds until the owner's lease ends, from the moment of the message. */
      readonly remaining: number;
    };

/** Consecutive fencing tokens that no other process gets. */
export interface TokenRange {
  readonly first: number;
  readonly count: number;
}

/** One ticket at one name. */
export interface WaiterRequest extends NameRequest {
  readonly ticket: string;
}

/** Asks for the name, now or later. */
export interface EnqueueRequest extends WaiterRequest {
  /** Milliseconds of lease when it is granted at once, whole. */
  readonly ttl: number;
  /** Milliseconds of lease when it is granted later, whole; absent: one try. */
  readonly claim?: number | undefined;
}

/** Passes the name on, and asks for it again. */
export interface RequeueRequest extends WaiterRequest {
  readonly again: string;
  /** Milliseconds of lease when it is granted again, whole. */
  readonly claim: number;
}

/** The ticket owns the name; or it waits, or does not, where it was asked to try once. */
export type QueueAnswer =
  | {
      readonly status: 'granted';
      readonly tokens: TokenRange;
      /** Milliseconds that the lease has left. */
      readonly remaining: number;
      readonly waiting: number;
    }
  | {
      readonly status: 'busy';
      /** A message with a token below this was sent for an earlier grant. */
      readonly unissued: number;
      /** Whether the ticket is the first in the queue. */
      readonly first: boolean;
      /** Whether its turn cannot come soon: it may say less often that it lives. */
      readonly far?: boolean;
      /** Whether no message reaches its process: it has to ask often. */
      readonly unreached?: boolean;
      /** The owner, and the ms left of its lease (`Infinity`: no expiry). */
      readonly owner: string;
      readonly remaining: number;
    };
