import type { QueueAnswer, QueueMessage } from '../../contracts/lock-backend.js';
import { LinkedList } from '../../timing/linked-list.js';
import type { Instant } from '../lease/lease-clock.js';
import type { LockBackendError, LockTimeoutError } from '../../errors/lock-errors.js';
import { Asking } from './asking.js';
import { backoff } from '../../timing/backoff.js';
import type { Caller, CallerHost } from './caller.js';
import type { LockQueues } from './lock-queues.js';
import { refusalOf } from './refusals.js';
import { Turn } from './turn.js';

type Granted = Pick<Extract<QueueAnswer, { status: 'granted' }>, 'tokens' | 'remaining' | 'waiting'>;
type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/**
 * What one process does for one name: its callers queue here, in order of arrival, and one ticket at a time asks the
 * backend for all of them. What the backend grants is passed from caller to caller without a round trip, for as long as
 * nobody else wants it, or for one bounded turn.
 *
 * It is idle, or it has an attempt (a ticket that asks or waits), or a grant (with a holder; or without one, while the
 * lease is renewed or tokens are reserved for the next). The states and their rules are those of docs/protocol.md.
 */
export class Contender implements CallerHost {
  readonly callers = new LinkedList<Caller>();
  /** Why the last request failed; absent once one was answered. */
  error: LockBackendError | undefined;
  private readonly asking: Asking;
  private readonly turn: Turn;
  private failures = 0;
  /** Whether a caller waits for nothing but the answer that is under way. */
  private overdue = false;

  constructor(
    private readonly queues: LockQueues,
    readonly name: string,
    /** Whether it asks for one caller only: it keeps nothing for a next one. */
    readonly single: boolean,
  ) {
    const names = [name] as const;
    this.asking = new Asking(this, queues, names);
    this.turn = new Turn(this, this.asking, queues, names);
  }

  join(caller: Caller): void {
    const { keeps } = this;
    caller.place = this.callers.push(caller);
    const { grant } = this.turn;
    if (grant) this.turn.joined(grant, keeps);
    else if (!this.asking.active) this.asking.enqueue(caller);
  }

  get idle(): boolean {
    return !this.callers.first && !this.asking.attempt && !this.turn.grant;
  }

  /** Whether a caller of this process holds the name. */
  get holds(): boolean {
    return this.turn.grant?.holder?.held === true;
  }

  /** Whether it owns the name for the rest of a tick, with no holder and no caller. */
  get keeps(): boolean {
    const { grant } = this.turn;
    return grant !== undefined && !grant.holder && !this.callers.first;
  }

  /** Whether its ticket stands in the queue at the backend, as far as is known. */
  get queued(): boolean {
    return this.asking.attempt?.queues === true;
  }

  /** Whether the ticket is its own, and it asks, waits or owns under it. */
  knows(ticket: string): boolean {
    return this.asking.attempt?.ticket === ticket || this.owns(ticket);
  }

  owns(ticket: string): boolean {
    return this.turn.grant?.ticket === ticket;
  }

  onGrant(message: GrantMessage): void {
    this.asking.onGrant(message);
  }

  wantedElsewhere(ticket: string): void {
    this.turn.wantedElsewhere(ticket);
  }

  /** The lease of the owner ends sooner than this waiter was told. */
  leaseEnds(ticket: string, remaining: number): void {
    this.asking.leaseEnds(ticket, remaining);
  }

  /** Messages may have been lost: asks now. */
  onReconnect(): void {
    this.asking.onReconnect();
  }

  /** The error for a caller that would not or cannot wait any longer. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error } = this;
    return refusalOf(this.name, waited, { error, grant: this.turn.grant, busy: this.asking.busy }, this.queues);
  }

  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      return caller.awaitAnswer(caller.options.commandTimeout ?? this.queues.commandTimeout);
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.budget.waited()));
    if (!this.callers.first) this.quit();
  }

  /** Whether a request is under way that says whether the name is to be had. */
  private get awaitsAnswer(): boolean {
    const { attempt } = this.asking;
    if (attempt) return !attempt.answered;
    const { grant } = this.turn;
    return grant !== undefined && !grant.holder && !this.error;
  }

  /** Its last caller has left. */
  quit(): void {
    this.asking.quit();
    this.turn.quit();
    this.queues.forgetIdle(this);
  }

  /** The answer is there that they waited for, and it is not for them. */
  refuseOverdue(): void {
    this.overdue = false;
    for (const caller of this.callers.toArray()) {
      if (caller.triesOnce || caller.overdue) caller.refuse(this.refusal(caller.budget.waited()));
    }
  }

  refuseIfOverdue(): void {
    if (this.overdue) this.refuseOverdue();
  }

  /** Asks anew for those who still wait. */
  goOn(): void {
    if (this.turn.grant || this.asking.active) return;
    const caller = this.callers.first;
    if (caller) this.asking.enqueue(caller);
    else this.queues.forgetIdle(this);
  }

  /** The ticket owns the name. */
  granted(ticket: string, base: Instant, answer: Granted, startedAt?: Instant): void {
    this.succeeded();
    this.turn.begin(ticket, base, answer, startedAt);
  }

  /** The backend answered. */
  succeeded(): void {
    this.error = undefined;
    this.failures = 0;
  }

  /** Milliseconds to pause after a request failed. */
  backOff(): number {
    return backoff(this.failures++);
  }
}
