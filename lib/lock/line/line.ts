import type { Busy, QueueMessage } from '../../contracts/lock-backend.js';
import { lockChannels } from '../../events/lock-channels.js';
import { LinkedList } from '../../timing/linked-list.js';
import { type Instant, backoff } from '../../timing/clock.js';
import type { LockBackendError, LockTimeoutError } from '../../errors/lock-errors.js';
import { Attempts } from './attempts.js';
import type { Caller, CallerHost } from './caller.js';
import { lastOwnerOf, refusalOf, type LastOwner } from './polling.js';
import { SharedTurn } from './shared-turn.js';
import type { Lease } from '../grant/lease.js';
import { Turn } from './turn.js';
import type { LockQueue } from '../../contracts/lock-queue.js';
import type { Grant } from '../grant/grant.js';
import type { Granted } from '../../contracts/lock-requests.js';
import type { NamedBackend } from './named-backend.js';
import type { QueueChannel } from './lines.js';

type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** Where messages find the contenders, by name or by ticket. */
export interface ContenderIndex extends WaitingPlace {
  addTicket(ticket: string, contender: Contender): void;
  removeTicket(ticket: string): void;
  remove(contender: Contender): void;
}

/**
 * Serves the callers of one process for one name, in order of arrival: it asks the backend with one ticket for all of
 * them, and passes what the backend grants from caller to caller without a request, for one bounded turn while another
 * process waits, else for as long as callers come.
 *
 * It is idle, or has an attempt (a ticket that asks or waits), or a grant: with a holder, or without one while it
 * renews the lease or reserves tokens for the next caller. docs/protocol.md has the states and their rules.
 */
export class Contender implements CallerHost, Contention {
  readonly callers = new LinkedList<Caller>();
  readonly names: readonly [string];
  error: LockBackendError | undefined;
  private readonly attempts: Attempts;
  private readonly turn: Turn | SharedTurn;
  private failures = 0;
  /** Whether the wait of some caller is over, and it stays only for the answer under way. */
  private overdue = false;

  constructor(
    readonly place: ContenderIndex,
    readonly name: string,
    readonly single: boolean,
    /** Whether its callers read, and so share what it is granted. */
    private readonly reads = false,
  ) {
    this.names = [name];
    this.attempts = new Attempts(this);
    this.turn = reads ? new SharedTurn(this) : new Turn(this, this.attempts);
  }

  join(caller: Caller): void {
    const { grant } = this.turn;
    if (!grant) {
      caller.place = this.callers.push(caller);
      if (!this.attempts.active) this.attempts.start(caller);
      else caller.meetContention();
      return;
    }
    const { available } = this;
    caller.place = this.callers.push(caller);
    if (!available) caller.meetContention(grant.ticket);
    this.turn.joined(grant, available);
  }

  get idle(): boolean {
    return !this.callers.first && !this.attempts.current && !this.turn.grant;
  }

  /** Whether a caller of this process holds the name. */
  get holds(): boolean {
    return this.turn.grant?.holder?.held === true;
  }

  /** Whether a caller that comes now gets the name without a request. */
  get available(): boolean {
    return this.turn.available;
  }

  /** Whether its ticket waits in the queue at the backend, as far as this process knows. */
  get queued(): boolean {
    return this.attempts.current?.queues === true;
  }

  /** Whether it asks, waits or owns under this ticket. */
  knows(ticket: string): boolean {
    return this.attempts.current?.ticket === ticket || this.owns(ticket);
  }

  owns(ticket: string): boolean {
    return this.turn.owns(ticket);
  }

  /** Readers keep the lease of an owner of this process. */
  adopt(lease: Lease): void {
    if (this.turn instanceof SharedTurn) this.turn.adopt(lease);
  }

  nextTicket(): string {
    const ticket = this.place.nextTicket(this.reads);
    if (this.single) this.place.addTicket(ticket, this);
    return ticket;
  }

  forgetTicket(ticket: string): void {
    if (this.single) this.place.removeTicket(ticket);
  }

  forgetIfIdle(): void {
    if (this.idle && this.turn.empty) this.place.remove(this);
  }

  onGrant(message: GrantMessage): void {
    this.attempts.onGrant(message);
  }

  wantedElsewhere(ticket: string): void {
    this.turn.wantedElsewhere(ticket);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(ticket: string, remaining: number): void {
    this.attempts.onLeaseEnds(ticket, remaining);
  }

  /** The channel was closed and is open again: messages may have been lost. */
  onReconnect(): void {
    this.attempts.onReconnect();
  }

  /** The error for a caller that has waited for `waited` ms. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error } = this;
    const { lastOwner } = this.attempts;
    return refusalOf(this.place.backend, this.names, waited, { error, grant: this.turn.grant, lastOwner });
  }

  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      const { timeouts, commandTimeout } = this.place.backend.calls;
      return caller.awaitAnswer(timeouts, caller.options.commandTimeout ?? commandTimeout);
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.waited()));
    if (!this.callers.first) this.quit();
  }

  /** Whether a request is under way whose answer decides whether the next caller gets the name. */
  private get awaitsAnswer(): boolean {
    const { current } = this.attempts;
    if (current) return !current.answered;
    const { grant } = this.turn;
    return grant !== undefined && !grant.holder && !this.error;
  }

  quit(): void {
    this.attempts.quit();
    this.turn.quit();
    this.forgetIfIdle();
  }

  busy(answer: Busy): LastOwner {
    if (lockChannels.contended.hasSubscribers) {
      for (const caller of this.callers.toArray()) caller.meetContention(answer.owner);
    }
    return lastOwnerOf(answer);
  }

  refuseOverdue(): void {
    this.overdue = false;
    for (const caller of this.callers.toArray()) {
      if (caller.triesOnce || caller.overdue) caller.refuse(this.refusal(caller.waited()));
    }
  }

  refuseIfOverdue(): void {
    if (this.overdue) this.refuseOverdue();
  }

  goOn(): void {
    if (this.turn.grant || this.attempts.active) return;
    const caller = this.callers.first;
    if (caller) this.attempts.start(caller);
    else this.forgetIfIdle();
  }

  granted(ticket: string, base: Instant, answer: GrantedLease, startedAt?: Instant): void {
    this.succeeded();
    this.turn.begin(ticket, base, answer, startedAt);
  }

  succeeded(): void {
    this.error = undefined;
    this.failures = 0;
  }

  backOff(): number {
    return backoff(this.failures++);
  }
}

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
