import type { NameRequest } from './lock-requests.js';
import type { Pending } from './pending.js';

/**
 * The tickets of different processes in order of arrival, kept at the backend: a release gives the lock to the first
 * live ticket in the same atomic step, and then sends a message to its process. Late, lost and repeated messages and
 * answers do no harm, by the rules of docs/protocol.md.
 */
export interface LockQueue {
  /** Opens the channel on which messages for this process arrive. Rejects when it cannot be opened, and may then be called again. */
  listen(listener: QueueListener): Promise<void>;

  /** Closes the channel of a process that stops; other modules may go on with the backend. */
  unlisten?(listener: Pick<QueueListener, 'prefix' | 'process'>): void;

  /**
   * Takes the name if it is free and no ticket waits for it; else queues the ticket, or without a `claim` answers at
   * once. A ticket that owns the name is granted it again; one that waits keeps its position.
   */
  enqueue(request: EnqueueRequest): Pending<QueueAnswer>;

  /** Reports that a waiter is alive. It never queues a ticket: `gone` when the ticket does not wait any more. */
  beat(request: WaiterRequest): Promise<QueueAnswer | { readonly status: 'gone' }>;

  /** Passes the name to the first waiter, and queues another ticket of this process behind the others. */
  requeue(request: RequeueRequest): Promise<QueueAnswer | { readonly status: 'not-owner'; readonly resent: boolean }>;

  /** Reserves further tokens for the ticket that owns the name; `null` when it does not any more. */
  mint(request: WaiterRequest & { readonly leastToken: number }): Promise<TokenRange | null>;
}

/** The process that listens, and what it does with a message. */
export interface QueueListener {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** What the tickets of this process begin with, before a `:` and a number. */
  readonly process: string;
  /** A message arrived. It may be late, repeated, or for an earlier ticket. */
  onMessage(message: QueueMessage): void;
  /** The channel was cut and is open again: messages may have been lost. */
  onReconnect(): void;
}

/**
 * - `grant`: the ticket, which waited, owns the name now.
 * - `wanted`: another process waits for the name that the ticket owns.
 * - `revoked`: what the ticket owned was released by force.
 * - `ends`: the owner's lease ends sooner than the first waiter was last told.
 */
export type QueueMessage =
  | {
      readonly kind: 'grant';
      readonly ticket: string;
      readonly name: string;
      readonly tokens: TokenRange;
      /** Milliseconds of lease from the moment of the grant. */
      readonly claim: number;
      /** How many tickets wait behind it. */
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
  /** The lease when the name is granted at once: whole milliseconds. */
  readonly ttl: number;
  /** The lease when the name is granted later: whole milliseconds. Absent for a ticket that must not wait. */
  readonly claim?: number | undefined;
}

/** Passes the name on, and asks for it again. */
export interface RequeueRequest extends WaiterRequest {
  /** The ticket that asks again. */
  readonly again: string;
  /** The lease when the name is granted again: whole milliseconds. */
  readonly claim: number;
}

/** The ticket owns the name; or it is busy: the ticket waits, unless it must not. */
export type QueueAnswer =
  | {
      readonly status: 'granted';
      readonly tokens: TokenRange;
      /** Milliseconds left of the lease. */
      readonly remaining: number;
      /** How many tickets wait for the name. */
      readonly waiting: number;
    }
  | {
      readonly status: 'busy';
      /** A message with a token below this was sent for an earlier grant. */
      readonly unissued: number;
      /** Whether the ticket is the first in the queue. */
      readonly first: boolean;
      /** Whether its turn cannot come soon: it may send its heartbeat less often. */
      readonly far?: boolean;
      /** Whether no message reaches its process: it has to ask often. */
      readonly unreached?: boolean;
      /** The owner, and the ms left of its lease (`Infinity`: no expiry). */
      readonly owner: string;
      readonly remaining: number;
    };
