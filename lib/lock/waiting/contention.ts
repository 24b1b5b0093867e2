import type { LinkedList } from '../../timing/linked-list.js';
import type { Instant } from '../lease/lease-clock.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import type { QueueAnswer } from '../../contracts/lock-backend.js';
import type { QueueCalls } from '../backend/backend-calls.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Caller } from './caller.js';
import type { QueueChannel } from './queue-channel.js';

/** What a grant brings with it, whether an answer or a message told of it. */
export type Granted = Pick<Extract<QueueAnswer, { status: 'granted' }>, 'tokens' | 'remaining' | 'waiting'>;

/** The backend and its queue, as the contenders of one process use them. */
export interface WaitingPlace {
  readonly backend: NamedBackend;
  readonly queue: QueueCalls;
  readonly channel: QueueChannel;
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
  /** The ticket neither asks, waits nor owns any more. */
  forgetTicket(ticket: string): void;
  /** Leaves the memory of the process when it has no caller, attempt or grant. */
  forgetIfIdle(): void;
  /** Whether it owns the name under this ticket. */
  owns(ticket: string): boolean;
  granted(ticket: string, base: Instant, answer: Granted, startedAt?: Instant): void;
  /** The backend has answered. */
  succeeded(): void;
  /** Milliseconds to pause after a failed request. */
  backOff(): number;
  /** Refuses the callers that wait only for the answer which has arrived now, and was not for them. */
  refuseOverdue(): void;
  refuseIfOverdue(): void;
  /** Asks anew for the callers that still wait. */
  goOn(): void;
  /** The last caller has left. */
  quit(): void;
}
