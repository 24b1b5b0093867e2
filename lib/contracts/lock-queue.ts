import type { Busy, Granted, NameRequest, TicketRequest, TokenRange } from './lock-requests.js';
import type { Pending } from './store.js';

/**
 * The tickets of different processes in order of arrival, kept at the backend: a release gives the lock to the first
 * live ticket in the same atomic step, and then sends a message to its process. Late, lost and repeated messages and
 * answers do no harm: docs/protocol.md has the rules.
 */
export interface LockQueue {
  /**
   * Opens the channel on which messages for the module arrive, until the store is stopped. Rejects when it cannot be
   * opened, and may then be called again.
   */
  listen(): Promise<void>;

  /**
   * Takes the name if it is free and no ticket waits for it; else queues the ticket, or without a `claim` answers at
   * once. A ticket that owns the name is granted it again; one that waits keeps its position.
   */
  enqueue(request: EnqueueRequest): Pending<QueueAnswer>;

  /** Reports that a waiter is alive. It never queues a ticket: `gone` when the ticket no longer waits. */
  beat(request: BeatRequest): Pending<QueueAnswer | { readonly status: 'gone' }>;

  /** Passes the name to the first waiter, and queues another ticket of this process behind the others. */
  requeue(request: RequeueRequest): Pending<QueueAnswer | { readonly status: 'not-owner'; readonly resent: boolean }>;

  /** Whether it heeds the `pause` of heartbeats. */
  readonly pauses?: boolean | undefined;

  /**
   * For a queue that sends no messages: a waiter for the name sends its next heartbeat after this many ms, or when the
   * owner's lease ends.
   */
  pace?(request: NameRequest): number;

  /** For such a queue: a turn of this process has ended, and those that wait in others come before it. */
  giveWay?(request: NameRequest): void;
}

/**
 * - `grant`: the ticket, which waited, owns the name now.
 * - `wanted`: another process waits for the name that the ticket owns.
 * - `revoked`: what the ticket owned was released by force.
 * - `ends`: the owner's lease ends sooner than the last answer to the first waiter said.
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

/** Asks for the name, now or later. */
export interface EnqueueRequest extends TicketRequest {
  /** The same in every request of a ticket; `read` only for a store with `downgrade`. Default `write`. */
  readonly mode?: 'read' | 'write' | undefined;
  /** The lease when the name is granted at once: whole milliseconds. */
  readonly ttl: number;
  /** The lease when the name is granted later: whole milliseconds. Absent for a ticket that must not wait. */
  readonly claim?: number | undefined;
  /**
   * Whether the caller waits for long enough to let other processes ask first, after a turn of this one. One that does
   * not is to be asked for at once. Only for a queue that sends no messages.
   */
  readonly patient?: boolean | undefined;
}

/** A waiter's heartbeat. */
export interface BeatRequest extends TicketRequest {
  /** That with which the ticket asked first. Default `write`. */
  readonly mode?: 'read' | 'write' | undefined;
  /**
   * The lease when the name is granted now: whole milliseconds. A queue that keeps the `claim` of the ticket grants
   * that.
   */
  readonly ttl: number;
  /**
   * For how many whole milliseconds beyond the usual time the ticket may send no heartbeat: its process waits for
   * thousands of names. At most 18 s; default 0.
   */
  readonly pause?: number | undefined;
}

/** Passes the name on, and asks for it again. */
export interface RequeueRequest extends TicketRequest {
  /** The ticket that asks again. */
  readonly again: string;
  /** The lease when the name is granted again: whole milliseconds. */
  readonly claim: number;
}

/** `granted`: the ticket owns the name. `busy`: it waits in the queue, unless its request had no `claim`. */
export type QueueAnswer = Granted | Busy;
