import type { Busy } from '../../contracts/lock-requests.js';
import { LockTimeoutError, type LockBackendError } from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { backoff } from '../../timing/clock.js';
import { LinkedList } from '../../timing/brief-collections.js';
import type { Grant } from '../grant/grant.js';
import type { Lease, ReleaseOutcome } from '../grant/lease.js';
import { Attempt, claimOf } from './attempt.js';
import type { Caller } from './caller.js';
import type { LockMode } from '../options/lock-options.js';
import type { Contenders } from './lines.js';
import type { QueueingBackend } from './named-backend.js';
import { SharedTurn } from './shared-turn.js';
import { Turn } from './turn.js';

/** A caller that waits for longer than this (ms) can let other processes ask first: they do so within 50 ms. */
const PATIENT = 200;

/**
 * Serves the callers of one process for one name, in order of arrival: it asks the backend with one ticket for all of
 * them, and passes what the backend grants from caller to caller without a request, for one bounded turn while another
 * process waits, else for as long as callers come.
 *
 * It is **idle**. Or its ticket **asks** or **waits** (`attempt`), or it **pauses** before another one asks (`delay`).
 * Or it **owns** the name (`turn`): with a holder, or without one while it renews the lease or reserves tokens for the
 * next caller. docs/protocol.md has the rules.
 */
export class Contender {
  /** In order of arrival. */
  readonly callers = new LinkedList<Caller>();
  readonly names: readonly [string];
  readonly backend: QueueingBackend;
  /** The ticket that asks or waits now. */
  attempt: Attempt | undefined;
  /** The ticket that a message has granted the name last: the answer to its request may still come. */
  granted: Attempt | undefined;
  /** What was granted. */
  readonly turn: Turn | SharedTurn;
  /** Why the last request failed; `undefined` once the backend has answered. */
  error: LockBackendError | undefined;
  /** Whether what it was granted lingers: no caller has it, and the next one gets it without a request. */
  lingers = false;
  /** Whether the wait of some caller is over, and it stays only for the answer under way. */
  overdue = false;
  /** After what another ticket asks: a pause, or a release of this process. */
  private delay: NodeJS.Timeout | Promise<unknown> | undefined;
  /** The owner of the name in the last answer. */
  private lastOwner: LastOwner | undefined;
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
    this.turn = mode === 'read' ? new SharedTurn(this) : new Turn(this);
  }

  join(caller: Caller): void {
    const { grant } = this.turn;
    if (!grant) {
      caller.place = this.callers.push(caller);
      if (this.attempt || this.delay) caller.meetContention();
      else this.ask(caller);
      return;
    }
    const { available } = this.turn;
    caller.place = this.callers.push(caller);
    if (!available) caller.meetContention(grant.ticket);
    this.turn.joined(grant, available);
  }

  /** The wait of the caller is over, or was cancelled for a reason. */
  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      const { calls } = this.backend;
      return caller.awaitAnswer(calls.timeouts, caller.commandTimeout(calls));
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.waited()));
    if (!this.callers.first) this.quit();
  }

  /** The error for a caller that has waited for `waited` ms. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error, names } = this;
    const { grant } = this.turn;
    const { lastOwner } = this;
    if (error) return error;
    if (grant?.holder) return timedOut(names, waited, grant.ticket, grant.remaining());
    if (lastOwner) return timedOut(names, waited, lastOwner.owner, lastOwner.until - performance.now());
    return this.backend.calls.unanswered('acquire', names, waited);
  }

  /** Readers keep the lease of an owner of this process. */
  adopt(lease: Lease): void {
    if (this.turn instanceof SharedTurn) this.turn.adopt(lease);
  }

  get idle(): boolean {
    return !this.callers.first && !this.attempt && !this.turn.grant;
  }

  /** Whether a caller of this process holds the name. */
  get holds(): boolean {
    return this.turn.grant?.holder?.held === true;
  }

  /** Whether its ticket waits in the queue at the backend, as far as this process knows. */
  get queued(): boolean {
    return this.attempt?.queues === true;
  }

  /** Whether it asks, waits or owns under this ticket. */
  knows(ticket: string): boolean {
    return this.attempt?.ticket === ticket || this.turn.owns(ticket);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(ticket: string, remaining: number): void {
    if (this.attempt?.ticket === ticket) this.attempt.onLeaseEnds(remaining);
  }

  /** The channel was closed and is open again: messages may have been lost. */
  onReconnect(): void {
    this.attempt?.onReconnect();
    this.turn.handBack();
  }

  /** The ticket no longer asks, waits or owns. */
  forgetTicket(ticket: string): void {
    if (this.single) this.contenders.removeTicket(ticket);
  }

  /** Drops the contender from memory when it has no caller, attempt or grant. */
  forgetIfIdle(): void {
    if (this.idle && !(this.turn instanceof SharedTurn && this.turn.used)) this.contenders.remove(this);
  }

  /** The backend answered that the name is taken. */
  busy({ owner, remaining }: Busy): void {
    if (lockChannels.contended.hasSubscribers) {
      for (const caller of this.callers.toArray()) caller.meetContention(owner);
    }
    this.lastOwner = { owner, until: performance.now() + remaining };
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
    if (this.turn.grant || this.attempt || this.delay) return;
    const caller = this.callers.first;
    if (caller) this.ask(caller);
    else this.forgetIfIdle();
  }

  /** Asks again after a pause, which grows with each failure in a row. */
  pause(): void {
    this.delay = setTimeout(() => {
      this.delay = undefined;
      this.goOn();
    }, this.backOff()).unref();
  }

  /**
   * Asks under a new ticket once the release is answered, so that the request cannot overtake it. Where requests are
   * written in order, that is not waited for: the ticket asks again if it finds the name taken.
   */
  askAfter(released: Promise<unknown>): void {
    this.delay = released;
    void released.then(() => {
      if (this.delay !== released) return;
      this.delay = undefined;
      this.goOn();
    });
  }

  /** Hands the name over to another process and waits again under a new ticket, in one request. */
  requeue(grant: Grant, claim: number): Promise<ReleaseOutcome> {
    const { backend, contenders, name, names } = this;
    const { calls, releaser } = backend;
    const attempt = (this.attempt = new Attempt(this, true, claim));
    const request = { prefix: calls.prefix, name, ticket: grant.ticket, again: attempt.ticket, claim };
    return releaser.ending(grant, (ended) => {
      calls.send(
        'release',
        names,
        () => contenders.queue.requeue(request),
        (answer) => {
          if (answer.status !== 'not-owner') {
            attempt.answered(attempt.askedAt, answer);
            return ended('released');
          }
          // The backend carried out an earlier send of this request, and the message of the grant has arrived.
          if (attempt.owns) return ended('released');
          if (answer.resent) attempt.abandon();
          if (this.attempt === attempt) {
            attempt.end();
            this.goOn();
          }
          ended(answer.resent ? 'released' : 'taken');
        },
        (error) => {
          releaser.repeatUntilConfirmed(grant);
          attempt.failed(error);
          ended('unconfirmed');
        },
      );
    });
  }

  /** The last caller has left: gives up the ticket that asks or waits, and what was granted. */
  quit(): void {
    const { attempt, delay } = this;
    if (attempt) {
      attempt.end();
      attempt.abandon();
    }
    if (!(delay instanceof Promise)) clearTimeout(delay);
    this.delay = undefined;
    this.turn.quit();
    this.forgetIfIdle();
  }

  /** Asks under a new ticket. */
  private ask(caller: Caller): void {
    const { backend, contenders, name, names } = this;
    const { calls, releaser } = backend;
    const { options, first } = caller;
    const { commandTimeout = calls.commandTimeout, mode, ttl, lease } = options;
    const released = releaser.inFlight > 0 ? releaser.releasing(names) : undefined;
    if (released && !calls.backend.traits.writesAtOnce) return this.askAfter(released);
    const queues = contenders.channel.tried && !caller.triesOnce;
    const claim = queues ? claimOf(this, ttl) : undefined;
    const attempt = (this.attempt = new Attempt(this, queues, lease, claim, released));
    const patient = caller.remaining() > PATIENT;
    const queue = first ?? contenders.queue;
    calls.send(
      'acquire',
      names,
      () => queue.enqueue({ prefix: calls.prefix, name, ticket: attempt.ticket, mode, ttl: lease, claim, patient }),
      (answer) => {
        if (answer.status === 'answered') return attempt.needless(caller);
        if (first && caller.waits && caller.first) caller.asksForName();
        attempt.answered(attempt.askedAt, answer);
      },
      (error) => {
        if (first?.failed && caller.waits && caller.first) caller.refuse(first.failed(error));
        attempt.failed(error);
      },
      // It may be its second request, after a release of this process.
      options.wait === 0 ? caller.limitOf(calls) : commandTimeout,
    );
  }

  /** Whether a request is under way whose answer decides whether the next caller gets the name. */
  private get awaitsAnswer(): boolean {
    if (this.attempt) return !this.attempt.waits;
    if (this.delay instanceof Promise) return true;
    const { grant } = this.turn;
    return grant !== undefined && !grant.holder && !this.error;
  }
}

/** The owner of a name in an answer of the backend. */
interface LastOwner {
  readonly owner: string;
  /** When (monotonic, ms) its lease ends. */
  readonly until: number;
}

/** The answer names no owner if the name was free and other tickets waited ahead of this one. */
function timedOut(names: readonly [string], waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError(names, { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
