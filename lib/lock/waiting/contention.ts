import type { LinkedList } from '../../timing/linked-list.js';
import type { Instant } from '../../timing/instant.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import type { LockQueue } from '../../contracts/lock-queue.js';
import type { Grant } from '../lease/grant.js';
import type { Busy, Granted } from '../../contracts/lock-requests.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Caller } from './caller.js';
import type { QueueChannel } from '../queue/queue-channel.js';
import type { LastOwner } from './refusals.js';

/** What a grant contains, whether an answer or a message reported it. */
export type GrantedLease = Omit<Granted, 'status'>;

/** The backend and its queue, as the contenders of one process use them. */
export interface WaitingPlace {
  readonly backend: NamedBackend;
  readonly queue: LockQueue;
  readonly channel: QueueChannel;
  /** A new ticket, which asks to read where `reads`. */
  nextTicket(reads?: boolean): string;
}

/** What a contender does with the grants that it gets: passes each from caller to caller, or lets callers share it. */
export interface CallerTurn {
  /** What the process owns, and callers get. */
  readonly grant: Grant | undefined;
  /** Whether a caller that comes now gets the grant at once. */
  readonly available: boolean;
  /** Whether it has no grant left. */
  readonly empty: boolean;
  owns(ticket: string): boolean;
  /** Another caller waits. It gets the grant at once if that was `available`. */
  joined(grant: Grant, available: boolean): void;
  wantedElsewhere(ticket: string): void;
  begin(ticket: string, base: Instant, answer: GrantedLease, startedAt?: Instant): void;
  /** The last caller has left. */
  quit(): void;
}

/** A contender, as its own parts see it. */
export interface Contention {
  readonly place: WaitingPlace;
  readonly names: readonly [string];
  /** Whether it serves one caller only, and so has no next caller to wait for. */
  readonly single: boolean;
  /** In order of arrival. */
  readonly callers: LinkedList<Caller>;
  /** Why the last request failed; `undefined` once the backend has answered. */
  error: LockBackendError | undefined;
  /** A ticket for its next attempt. */
  nextTicket(): string;
  /** The ticket no longer asks, waits or owns. */
  forgetTicket(ticket: string): void;
  /** Drops the contender from memory when it has no caller, attempt or grant. */
  forgetIfIdle(): void;
  /** Whether it owns the name under this ticket. */
  owns(ticket: string): boolean;
  granted(ticket: string, base: Instant, answer: GrantedLease, startedAt?: Instant): void;
  /** The backend has answered. */
  succeeded(): void;
  /** Milliseconds to pause after a failed request. */
  backOff(): number;
  /** The backend answered that the name is taken. Returns by whom. */
  busy(answer: Busy): LastOwner;
  /** Refuses the overdue callers: the answer that they stayed for has arrived, and it does not admit them. */
  refuseOverdue(): void;
  refuseIfOverdue(): void;
  /** Asks again for the callers that still wait. */
  goOn(): void;
  /** The last caller has left. */
  quit(): void;
}
