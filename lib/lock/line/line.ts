import type { Busy } from '../../contracts/lock-requests.js';
import { LockTimeoutError, type LockBackendError } from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { backoff } from '../../timing/clock.js';
import { LinkedList } from '../../timing/linked-list.js';
import type { Lease } from '../grant/lease.js';
import { Attempts, type GrantMessage } from './attempts.js';
import type { Caller } from './caller.js';
import type { LockMode } from '../options/lock-options.js';
import type { Contenders } from './lines.js';
import type { QueueingBackend } from './named-backend.js';
import { SharedTurn } from './shared-turn.js';
import { Turn } from './turn.js';

/**
 * Serves the callers of one process for one name, in order of arrival: it asks the backend with one ticket for all of
 * them, and passes what the backend grants from caller to caller without a request, for one bounded turn while another
 * process waits, else for as long as callers come.
 *
 * It is idle, or has an attempt (a ticket that asks or waits), or a grant: with a holder, or without one while it
 * renews the lease or reserves tokens for the next caller. docs/protocol.md has the rules.
 *
 * `Attempts` has the ticket that asks, and `Turn` (for readers: `SharedTurn`) what was granted; both call back here.
 */
export class Contender {
  /** In order of arrival. */
  readonly callers = new LinkedList<Caller>();
  readonly names: readonly [string];
  readonly backend: QueueingBackend;
  /** Why the last request failed; `undefined` once the backend has answered. */
  error: LockBackendError | undefined;
  /** Whether what it was granted lingers: no caller has it, and the next one gets it without a request. */
  lingers = false;
  readonly turn: Turn | SharedTurn;
  /** Whether the wait of some caller is over, and it stays only for the answer under way. */
  overdue = false;
  private readonly attempts: Attempts;
  private failures = 0;

  constructor(
    /** Those of this process at the backend, this one among them. */
    readonly contenders: Contenders,
    readonly name: string,
    /** Whether it serves one caller only, and so has no next caller to wait for. */
    readonly single: boolean,
    /** Callers that read share what it is granted. */
    readonly mode: LockMode,
  ) {
    this.names = [name];
    this.backend = contenders.backend;
    this.attempts = new Attempts(this);
    this.turn = mode === 'read' ? new SharedTurn(this) : new Turn(this, this.attempts);
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

  /** The wait of the caller is over, or was cancelled for a reason. */
  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      const { timeouts, commandTimeout } = this.backend.calls;
      return caller.awaitAnswer(timeouts, caller.options.commandTimeout ?? commandTimeout);
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.waited()));
    if (!this.callers.first) this.quit();
  }

  /** The error for a caller that has waited for `waited` ms. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error, names } = this;
    const { grant } = this.turn;
    const { lastOwner } = this.attempts;
    if (error) return error;
    if (grant?.holder) return timedOut(names, waited, grant.ticket, grant.remaining());
    if (lastOwner) return timedOut(names, waited, lastOwner.owner, lastOwner.until - performance.now());
    return this.backend.calls.unanswered('acquire', names, waited);
  }

  /** A caller comes. `false` if what lingers was not there for it, but was handed back. */
  resume(): boolean {
    return this.turn instanceof SharedTurn || this.turn.resume();
  }

  /** Releases what lingers. */
  handBack(): void {
    if (this.turn instanceof Turn) this.turn.handBack();
  }

  /** Readers keep the lease of an owner of this process. */
  adopt(lease: Lease): void {
    if (this.turn instanceof SharedTurn) this.turn.adopt(lease);
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

  /** Whether it owns the name under this ticket. */
  owns(ticket: string): boolean {
    return this.turn.owns(ticket);
  }

  onGrant(message: GrantMessage): void {
    this.attempts.onGrant(message);
  }

  /** Another process waits for the name that the ticket owns. */
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
    this.handBack();
  }

  /** The ticket no longer asks, waits or owns. */
  forgetTicket(ticket: string): void {
    if (this.single) this.contenders.removeTicket(ticket);
  }

  /** Drops the contender from memory when it has no caller, attempt or grant. */
  forgetIfIdle(): void {
    if (this.idle && !(this.turn instanceof SharedTurn && this.turn.used)) this.contenders.remove(this);
  }

  /** The backend answered that the name is taken. Returns by whom. */
  busy({ owner, remaining }: Busy): LastOwner {
    if (lockChannels.contended.hasSubscribers) {
      for (const caller of this.callers.toArray()) caller.meetContention(owner);
    }
    return { owner, until: performance.now() + remaining };
  }

  /** The backend has answered. */
  succeeded(): void {
    this.error = undefined;
    this.failures = 0;
  }

  /** Milliseconds to pause after a failed request. */
  backOff(): number {
    return backoff(this.failures++);
  }

  /** Refuses the overdue callers: the answer that they stayed for has arrived, and it does not admit them. */
  refuseOverdue(): void {
    this.overdue = false;
    for (const caller of this.callers.toArray()) {
      if (caller.triesOnce || caller.overdue) caller.refuse(this.refusal(caller.waited()));
    }
  }

  /** The backend refuses for good: nobody waits for it to change its mind. */
  refuseAll(error: LockBackendError): void {
    for (const caller of this.callers.toArray()) caller.refuse(error);
  }

  /** Asks again for the callers that still wait. */
  goOn(): void {
    if (this.turn.grant || this.attempts.active) return;
    const caller = this.callers.first;
    if (caller) this.attempts.start(caller);
    else this.forgetIfIdle();
  }

  /** The last caller has left. */
  quit(): void {
    this.attempts.quit();
    this.turn.quit();
    this.forgetIfIdle();
  }

  /** Whether a request is under way whose answer decides whether the next caller gets the name. */
  private get awaitsAnswer(): boolean {
    const { current, awaitsRelease } = this.attempts;
    if (current) return !current.answered;
    if (awaitsRelease) return true;
    const { grant } = this.turn;
    return grant !== undefined && !grant.holder && !this.error;
  }
}

/** The owner of a name in an answer of the backend. */
export interface LastOwner {
  readonly owner: string;
  /** When (monotonic, ms) its lease ends. */
  readonly until: number;
}

/** The answer names no owner if the name was free and other tickets waited ahead of this one. */
function timedOut(names: readonly [string], waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError(names, { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
