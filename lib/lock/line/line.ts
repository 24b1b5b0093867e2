import type { Busy } from '../../contracts/lock-requests.js';
import { LockTimeoutError, type LockBackendError } from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { backoff, currentInstant, type Instant } from '../../timing/clock.js';
import { LinkedList } from '../../timing/brief-collections.js';
import type { Grant, GrantListener } from '../grant/grant.js';
import { Attempt, claimOf } from './attempt.js';
import type { Caller } from './caller.js';
import type { LockMode } from '../options/lock-options.js';
import type { Contenders } from './lines.js';
import type { QueueingBackend } from './named-backend.js';

/** A caller that waits for longer than this (ms) can let other processes ask first: they do so within 50 ms. */
const PATIENT = 200;

/**
 * Serves the callers of one process for one name, in order of arrival: it asks the backend with one ticket for all of
 * them, and passes what the backend grants from caller to caller without a request, for one bounded turn while another
 * process waits, else for as long as callers come.
 *
 * It is **idle**. Or its ticket **asks** or **waits** (`attempt`), or it **pauses** before another one asks (`delay`).
 * Or it **owns** the name (`grant`): with a holder, or without one while it renews the lease or reserves tokens for the
 * next caller. docs/protocol.md has the rules.
 */
export abstract class Contender extends LinkedList<Caller> implements GrantListener {
  /** The ticket that asks or waits now. */
  attempt: Attempt | undefined = undefined;
  /** The ticket that a message has granted the name last: the answer to its request may still come. */
  declare granted: Attempt | undefined;
  /** What the process owns, and callers get. */
  abstract readonly grant: Grant | undefined;
  /** Whether a caller that comes now gets the grant at once. */
  abstract readonly available: boolean;
  /** It serves one caller only, and so has no next caller to wait for. */
  declare readonly single: true | undefined;
  /** The owner of the name in the last answer. */
  private lastOwner: string | undefined = undefined;
  /** When (monotonic, whole ms) the lease of that one ends. */
  private ownedUntil = 0;
  /** Why the last request failed; absent once the backend has answered. */
  declare error: LockBackendError | undefined;
  /** Whether what it was granted lingers: no caller has it, and the next one gets it without a request. */
  declare lingers: boolean | undefined;
  /** Whether the wait of some caller is over, and it stays only for the answer under way. */
  declare overdue: boolean | undefined;
  /** After what another ticket asks: a pause, or a release of this process. */
  declare private delay: NodeJS.Timeout | Promise<unknown> | undefined;
  declare private failures: number | undefined;

  constructor(
    /** Those of this process at the backend, this one among them. */
    readonly contenders: Contenders,
    /** Its name alone. */
    readonly names: readonly [string],
    single: boolean,
    /** Callers that read share what it is granted. */
    readonly mode: LockMode,
  ) {
    super();
    if (single) this.single = single;
  }

  get name(): string {
    return this.names[0];
  }

  get backend(): QueueingBackend {
    return this.contenders.backend;
  }

  /** Whether the process owns the name under this ticket. */
  abstract owns(ticket: string): boolean;
  /** It was granted the name, with `waiting` others; `startedAt`: by the answer to a request that was sent then. */
  abstract begin(grant: Grant, waiting: number | undefined, startedAt?: Instant): void;
  /** Admits what callers it can; first gets what the grant lacks for the next one. */
  abstract serve(grant: Grant, startedAt?: Instant): void;
  /** Another caller waits. It gets the grant at once if that was `available`. */
  protected abstract joined(grant: Grant, available: boolean): void;
  abstract wantedElsewhere(ticket: string): void;
  /** A caller comes, for whom what lingers is there. `false` if it was handed back: little of its lease was left. */
  abstract resume(): boolean;
  /** Releases what lingers. */
  abstract handBack(): void;
  /** The process has lost the name: the backend said so, or the lease has ended. */
  abstract disowned(grant: Grant): void;
  /** Releases a grant that no caller waits for. */
  abstract giveUp(grant: Grant): void;
  /** Releases what it was granted unless a caller has it: the last one that waited has left. */
  protected abstract giveUpUnused(): void;

  join(caller: Caller): void {
    const { grant } = this;
    if (!grant) {
      this.push(caller);
      if (this.attempt || this.delay) caller.meetContention();
      else this.ask(caller);
      return;
    }
    const { available } = this;
    this.push(caller);
    if (!available) caller.meetContention(grant.ticket);
    this.joined(grant, available);
  }

  /** The wait of the caller is over, or was cancelled for a reason. */
  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      const { calls } = this.backend;
      return caller.awaitAnswer(calls.timeouts, caller.commandTimeout(calls));
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.waited()));
    if (!this.first) this.quit();
  }

  /** The error for a caller that has waited for `waited` ms. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error, names, grant, lastOwner } = this;
    if (error) return error;
    if (grant?.holder) return timedOut(names, waited, grant.ticket, grant.remaining());
    if (lastOwner !== undefined) return timedOut(names, waited, lastOwner, this.ownedUntil - performance.now());
    return this.backend.calls.unanswered('acquire', names, waited);
  }

  get idle(): boolean {
    return !this.first && !this.attempt && !this.grant;
  }

  /** Whether a caller of this process holds the name. */
  get holds(): boolean {
    return this.grant?.holder?.held === true;
  }

  /** Whether its ticket waits in the queue at the backend, as far as this process knows. */
  get queued(): boolean {
    return this.attempt?.queues === true;
  }

  /** Whether it asks, waits or owns under this ticket. */
  knows(ticket: string): boolean {
    return this.attempt?.ticket === ticket || this.owns(ticket);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(ticket: string, remaining: number): void {
    if (this.attempt?.ticket === ticket) this.attempt.onLeaseEnds(remaining);
  }

  /** The channel was closed and is open again: messages may have been lost. */
  onReconnect(): void {
    this.attempt?.onReconnect();
    this.handBack();
  }

  /** The ticket no longer asks, waits or owns. */
  forgetTicket(ticket: string): void {
    if (this.single) this.contenders.removeTicket(ticket);
  }

  /** Drops the contender from memory when it has no caller, attempt or grant. */
  forgetIfIdle(): void {
    if (this.idle) this.contenders.remove(this);
  }

  /** The backend answered that the name is taken. */
  busy({ owner, remaining }: Busy): void {
    if (lockChannels.contended.hasSubscribers) {
      for (const caller of this.toArray()) caller.meetContention(owner);
    }
    this.lastOwner = owner;
    this.ownedUntil = Math.floor(performance.now() + remaining);
  }

  /** The backend has answered. */
  succeeded(): void {
    if (this.error) this.error = undefined;
    if (this.failures) this.failures = 0;
  }

  /** Milliseconds to pause after a failed request. */
  backOff(): number {
    const { failures = 0 } = this;
    this.failures = failures + 1;
    return backoff(failures);
  }

  /** Refuses the overdue callers: the answer that they stayed for has arrived, and it does not admit them. */
  refuseOverdue(): void {
    if (this.overdue) this.overdue = false;
    for (const caller of this.toArray()) {
      if (caller.triesOnce || caller.overdue) caller.refuse(this.refusal(caller.waited()));
    }
  }

  /** The backend goes on refusing: nobody waits for it to change its mind. */
  refuseAll(error: LockBackendError): void {
    for (const caller of this.toArray()) caller.refuse(error);
  }

  /** Asks again for the callers that still wait. */
  goOn(): void {
    if (this.grant || this.attempt || this.delay) return;
    const caller = this.first;
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

  /** The last caller has left: gives up the ticket that asks or waits, and what was granted. */
  quit(): void {
    const { attempt, delay } = this;
    if (attempt) {
      attempt.end();
      attempt.abandon();
    }
    if (delay) {
      if (!(delay instanceof Promise)) clearTimeout(delay);
      this.delay = undefined;
    }
    this.giveUpUnused();
    this.forgetIfIdle();
  }

  /** Asks under a new ticket. */
  private ask(caller: Caller): void {
    const { contenders, names } = this;
    const { calls, releaser } = contenders.backend;
    const name = names[0];
    const { options, first } = caller;
    const { commandTimeout = calls.commandTimeout, mode, ttl, lease } = options;
    const released = releaser.inFlight > 0 ? releaser.releasing(names) : undefined;
    if (released && !calls.backend.traits.writesAtOnce) return this.askAfter(released);
    const queues = contenders.channel.tried && options.wait > 0;
    const claim = queues ? claimOf(this, ttl) : undefined;
    const sentAt = currentInstant();
    const attempt = (this.attempt = new Attempt(this, queues, sentAt, lease, claim, released));
    const patient = contenders.queue.pace && caller.remaining() > PATIENT;
    const queue = first ?? contenders.queue;
    calls.send(
      'acquire',
      names,
      () => queue.enqueue({ name, ticket: attempt.ticket, mode, ttl: lease, claim, patient }),
      (answer) => {
        if (answer.status === 'answered') return attempt.needless(caller);
        if (first && caller.waits && caller.first) caller.asksForName();
        attempt.answered(sentAt, answer);
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
    const { grant } = this;
    return grant !== undefined && !grant.holder && !this.error;
  }
}

/** The answer names no owner if the name was free and other tickets waited ahead of this one. */
function timedOut(names: readonly [string], waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError(names, { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
