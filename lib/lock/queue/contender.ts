import type { QueueAnswer, QueueMessage, TokenRange } from '../../backends/lock-backend.js';
import { Grant, type GrantListener } from '../grant.js';
import { Lease, type LeaseKeeper } from '../lease.js';
import { currentInstant, type Instant } from '../lease-clock.js';
import { LinkedList } from '../../timing/linked-list.js';
import type { LockBackendError, LockLostReason, LockTimeoutError } from '../lock-errors.js';
import { leaseOf } from '../lock-options.js';
import { RELEASED, type ReleaseOutcome } from '../releaser.js';
import { backOffAfter, newAttempt, type Attempt } from './attempt.js';
import type { Caller, CallerHost } from './caller.js';
import { claimOf, leastToEnter, nextBeat } from './claim.js';
import type { LockQueues } from './lock-queues.js';
import { lastOwnerOf, refusalOf, type LastOwner } from './refusals.js';

type Granted = Extract<QueueAnswer, { status: 'granted' }>;
type Busy = Extract<QueueAnswer, { status: 'busy' }>;
type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** How many holders of one process in a row may hold a lock that another process waits for, and for how long (ms). */
const TURN = 64;
const LONGEST_TURN = 50;
/** In a turn, which ends soon, further tokens are reserved when fewer are left; else also when half of the last ones are used. */
const FEW_TOKENS = 16;
/** While callers wait behind a holder of this process, the backend is asked at this period (ms) who owns the name. */
const CHECK_PERIOD = 500;

const GONE = Promise.resolve<ReleaseOutcome>('gone');

/**
 * What one process does for one name: its callers queue here, in order of arrival, and one ticket at a time asks the backend
 * for all of them. What the backend grants is passed from caller to caller without a round trip, for as long as nobody
 * else wants it, or for one bounded turn.
 *
 * It is idle, or it has an attempt (a ticket that asks or waits), or a grant (with a holder; or without one, while the
 * lease is renewed or tokens are reserved for the next). The states and their rules are those of docs/protocol.md.
 */
export class Contender implements LeaseKeeper, CallerHost, GrantListener {
  private readonly names: readonly [string];
  private readonly callers = new LinkedList<Caller>();
  private attempt: Attempt | undefined;
  private grant: Grant | undefined;
  private grantedAt = 0;
  private passes = 0;
  private wanted = false;
  private minting = false;
  private failures = 0;
  private pause: NodeJS.Timeout | undefined;
  private check: NodeJS.Timeout | undefined;
  private error: LockBackendError | undefined;
  private busy: LastOwner | undefined;
  /** Whether a caller waits for nothing but the answer that is under way. */
  private overdue = false;

  constructor(
    private readonly queues: LockQueues,
    readonly name: string,
    /** Whether it asks for one caller only: it keeps nothing for a next one. */
    readonly single: boolean,
  ) {
    this.names = [name];
  }

  join(caller: Caller): void {
    const { keeps } = this;
    caller.place = this.callers.push(caller);
    if (this.grant && keeps) this.serve(this.grant);
    else if (this.grant) this.stayInformed();
    else if (!this.attempt && !this.pause) this.enqueue();
  }

  get idle(): boolean {
    return !this.callers.first && !this.attempt && !this.grant;
  }

  /** Whether a caller of this process holds the name. */
  get holds(): boolean {
    return this.grant?.holder?.held === true;
  }

  /** Whether its ticket stands in the queue at the backend, as far as is known. */
  get queued(): boolean {
    return this.attempt?.queues === true;
  }

  /** The error for a caller that would not or cannot wait any longer. */
  refusal(waited: number): LockTimeoutError | LockBackendError {
    const { error, grant, busy } = this;
    return refusalOf(this.name, waited, { error, grant, busy }, this.queues);
  }

  takeBack(lease: Lease, atOnce: boolean): Promise<ReleaseOutcome> {
    const { grant } = this;
    if (!grant || grant.holder !== lease) return GONE;
    if (!lease.held) {
      lease.expire();
      return GONE;
    }
    lease.markReleased();
    grant.holder = undefined;
    if (grant.isKept) return this.keep(grant);
    this.passes += 1;
    const turnEnds = this.wanted && (this.passes >= TURN || performance.now() - this.grantedAt >= LONGEST_TURN);
    if (this.callers.first) {
      if (turnEnds) return this.requeue(grant);
      this.serve(grant);
      return RELEASED;
    }
    if (atOnce || turnEnds || !this.wanted || this.single) return this.release(grant);
    this.keepForThisTick(grant);
    return RELEASED;
  }

  /**
   * Others wait elsewhere, so that the lock does not fall free in any case. A caller that asks for it again at once has it
   * for the rest of the turn: to pass it on for every single hold costs all of them more than to wait for a turn.
   */
  private keepForThisTick(grant: Grant): void {
    const tickOver = new Promise<void>((resolve) => process.nextTick(resolve));
    this.queues.releaser.track(
      tickOver.then(() => {
        if (this.grant === grant && this.keeps) return this.release(grant);
        return undefined;
      }),
    );
  }

  /** Whether it owns the name for the rest of a tick, with no holder and no caller. */
  get keeps(): boolean {
    return this.grant !== undefined && !this.grant.holder && !this.callers.first;
  }

  /** The rest of the callers need not wait until the holder has noticed. */
  leaseLost(lease: Lease, reason: LockLostReason): void {
    const { grant } = this;
    if (!grant || grant.holder !== lease) return;
    this.drop(grant);
    if (reason !== 'taken') this.queues.releaser.abandon(grant, grant.longest);
    this.goOn();
  }

  /** Whether the ticket is its own, and it asks, waits or owns under it. */
  knows(ticket: string): boolean {
    return this.attempt?.ticket === ticket || this.grant?.ticket === ticket;
  }

  onGrant({ ticket, tokens, claim, waiting }: GrantMessage): void {
    const { attempt } = this;
    if (attempt?.ticket !== ticket) return;
    if (tokens.first < attempt.unissued) return;
    this.enter(ticket, attempt.base, { tokens, remaining: claim, waiting });
  }

  wantedElsewhere(ticket: string): void {
    if (this.grant?.ticket === ticket) this.wanted = true;
  }

  /** The lease of the owner ends sooner than this waiter was told. */
  leaseEnds(ticket: string, remaining: number): void {
    const { attempt, callers } = this;
    if (attempt?.ticket !== ticket || !attempt.heartbeat || !callers.first) return;
    const { ttl } = callers.first.options;
    this.beatAfter(attempt, nextBeat(ttl, { first: true, far: false, unreached: false, remaining }));
  }

  /** Messages may have been lost: asks now. */
  onReconnect(): void {
    if (this.attempt?.heartbeat) this.beat(this.attempt);
  }

  leave(caller: Caller, cancelled?: { reason: unknown }): void {
    if (!cancelled && !caller.overdue && this.awaitsAnswer) {
      this.overdue = true;
      return caller.awaitAnswer(this.queues.commandTimeout);
    }
    caller.refuse(cancelled ? cancelled.reason : this.refusal(caller.budget.waited()));
    if (!this.callers.first) this.quit();
  }

  /** Whether a request is under way that says whether the name is to be had. */
  private get awaitsAnswer(): boolean {
    if (this.attempt) return !this.attempt.answered;
    return this.grant !== undefined && !this.grant.holder && !this.error;
  }

  /** Its last caller has left. */
  private quit(): void {
    const { attempt, grant } = this;
    if (attempt) {
      this.end(attempt);
      this.queues.abandon(this.name, attempt.ticket, attempt.lease);
    }
    clearTimeout(this.pause);
    clearTimeout(this.check);
    this.pause = undefined;
    this.check = undefined;
    if (grant && !grant.holder) this.giveUp(grant);
    this.queues.forgetIdle(this);
  }

  private enqueue(): void {
    const caller = this.callers.first as Caller;
    const { ttl } = caller.options;
    const lease = leaseOf(caller.options);
    const attempt = this.begin(!caller.triesOnce && this.queues.listening, lease);
    this.queues.send(
      'acquire',
      this.names,
      this.queues.backend.enqueue({
        prefix: this.queues.prefix,
        name: this.name,
        ticket: attempt.ticket,
        ttl: lease,
        claim: attempt.queues ? claimOf(ttl) : undefined,
      }),
      (answer) => this.answered(attempt, attempt.base, answer),
      (error) => this.failed(attempt, error),
    );
  }

  private begin(queues: boolean, lease: number): Attempt {
    const ticket = this.queues.ticketFor(this);
    this.attempt = newAttempt(ticket, queues, lease);
    return this.attempt;
  }

  private end(attempt: Attempt): void {
    clearTimeout(attempt.heartbeat);
    this.queues.forget(attempt.ticket);
    this.attempt = undefined;
  }

  /** `sentAt` is when the request was sent; a copy that the client library sent later counts from then too. */
  private answered(attempt: Attempt, sentAt: Instant, answer: QueueAnswer): void {
    if (this.attempt !== attempt) {
      // Granted by a message before this answer; or given up meanwhile, and the release may have overtaken the request.
      if (this.grant?.ticket === attempt.ticket) return;
      if (answer.status === 'granted' || attempt.queues) this.queues.abandon(this.name, attempt.ticket, attempt.lease);
      return;
    }
    this.failures = 0;
    this.error = undefined;
    if (answer.status === 'granted') this.enter(attempt.ticket, sentAt, answer, sentAt);
    else if (attempt.queues) this.wait(attempt, sentAt, answer);
    else this.refused(attempt, answer);
  }

  private wait(attempt: Attempt, sentAt: Instant, answer: Busy): void {
    this.busy = lastOwnerOf(answer);
    attempt.answered = true;
    attempt.base = sentAt;
    attempt.unissued = answer.unissued;
    if (this.overdue) this.refuseOverdue();
    const caller = this.callers.first;
    if (!caller) return this.quit();
    this.beatAfter(attempt, nextBeat(caller.options.ttl, answer));
  }

  /** One try found it busy. Callers that want to wait do so in the queue. */
  private refused(attempt: Attempt, answer: Busy): void {
    this.busy = lastOwnerOf(answer);
    this.end(attempt);
    this.refuseOverdue();
    if (!this.callers.first) this.queues.forgetIdle(this);
    else void this.queues.listen().then(() => this.goOn());
  }

  private beatAfter(attempt: Attempt, delay: number): void {
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = setTimeout(() => this.beat(attempt), delay).unref();
  }

  private beat(attempt: Attempt): void {
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = undefined;
    const sentAt = currentInstant();
    this.queues.send(
      'acquire',
      this.names,
      this.queues.backend.beat({ prefix: this.queues.prefix, name: this.name, ticket: attempt.ticket }),
      (answer) => {
        if (answer.status !== 'gone') this.answered(attempt, sentAt, answer);
        else if (this.attempt === attempt) {
          this.end(attempt);
          this.goOn();
        }
      },
      (error) => {
        if (this.attempt !== attempt) return;
        this.error = error;
        this.beatAfter(attempt, this.backOff());
      },
    );
  }

  /** Whether an unanswered request was carried out is unknown: its ticket is given up, and a new one asks later. */
  private failed(attempt: Attempt, error: LockBackendError): void {
    // Carried out after all, and a message told of the grant.
    if (this.grant?.ticket === attempt.ticket) return;
    this.queues.abandon(this.name, attempt.ticket, attempt.lease);
    if (this.attempt !== attempt) return;
    this.end(attempt);
    this.error = error;
    this.refuseOverdue();
    if (!this.callers.first) return this.queues.forgetIdle(this);
    this.pause = setTimeout(() => {
      this.pause = undefined;
      this.goOn();
    }, this.backOff()).unref();
  }

  private enter(
    ticket: string,
    base: Instant,
    { tokens, remaining, waiting }: Pick<Granted, 'tokens' | 'remaining' | 'waiting'>,
    startedAt?: Instant,
  ): void {
    clearTimeout(this.attempt?.heartbeat);
    this.attempt = undefined;
    const grant = new Grant(this.names, ticket, base, remaining, tokens);
    grant.listener = this;
    this.grant = grant;
    this.grantedAt = performance.now();
    this.passes = 0;
    this.wanted = waiting > 0;
    this.error = undefined;
    this.failures = 0;
    if (this.callers.several) this.stayInformed();
    this.serve(grant, startedAt);
  }

  /** Lets the next caller in; first renews a lease that is too short for it, and reserves a token where none is left. */
  private serve(grant: Grant, startedAt?: Instant): void {
    const caller = this.callers.first;
    if (!caller) this.giveUp(grant);
    else if (grant.tokens === 0) this.mint(grant);
    else if (caller.triesOnce && grant.remaining() > 0) this.admit(grant, caller, startedAt);
    else if (caller.triesOnce) {
      caller.refuse(this.queues.tooLate(this.name, caller.options.ttl));
      this.serve(grant);
    } else if (grant.remaining() < leastToEnter(caller.options.ttl)) this.renew(grant, caller.options.ttl);
    else this.admit(grant, caller, startedAt);
  }

  private admit(grant: Grant, caller: Caller, startedAt?: Instant): void {
    caller.place?.leave();
    const lease = new Lease(grant, this, caller.options, startedAt);
    this.queues.watchdog.watch(grant);
    const few = this.wanted ? FEW_TOKENS : Math.max(FEW_TOKENS, grant.reserved / 2);
    if (grant.tokens < few && this.callers.first) this.mint(grant);
    if (this.overdue) this.refuseOverdue();
    caller.admit(lease);
  }

  /** Somebody waits behind a holder of this process, who must hear that others want the lock, or that it is gone. */
  private stayInformed(): void {
    this.check ??= this.armCheck();
    if (!this.queues.listening) void this.queues.listen().then(() => this.confirmHolder());
  }

  private armCheck(): NodeJS.Timeout {
    return setTimeout(() => {
      this.check = undefined;
      if (this.confirmHolder()) this.check = this.armCheck();
    }, CHECK_PERIOD).unref();
  }

  /** Answers `false` when there is nobody to ask for. */
  private confirmHolder(): boolean {
    const { grant } = this;
    if (!grant || !this.callers.first) return false;
    if (grant.holder) this.confirm(grant, grant.holder);
    return true;
  }

  /** Callers wait behind a holder of this process: asks whether the lock is still ours, or was deleted behind our back. */
  private confirm(grant: Grant, { options }: Lease): void {
    const sentAt = currentInstant();
    this.queues.send(
      'renew',
      this.names,
      this.queues.renew({ names: grant.names, ticket: grant.ticket, ttl: options.renewal ? options.ttl : 1 })[0],
      (answer) => {
        if (this.grant !== grant) return;
        this.error = undefined;
        if (answer.status !== 'renewed') return grant.lose('taken');
        grant.renewed(sentAt, answer.remaining);
        if (answer.waiting) this.wanted = true;
      },
      (error) => {
        if (this.grant === grant) this.error = error;
      },
    );
  }

  private mint(grant: Grant): void {
    if (this.minting) return;
    this.minting = true;
    const { name } = this;
    this.queues.send(
      'acquire',
      this.names,
      this.queues.backend.mint({ prefix: this.queues.prefix, name, ticket: grant.ticket, leastToken: 0 }),
      (tokens) => this.minted(grant, tokens),
      (error) => this.unusable(grant, error),
    );
  }

  private minted(grant: Grant, tokens: TokenRange | null): void {
    this.minting = false;
    if (this.grant !== grant) return this.retryServe();
    if (tokens) grant.addTokens(tokens);
    if (grant.holder) {
      if (!tokens) grant.lose('taken');
    } else if (tokens) this.serve(grant);
    else this.lostBeforeEntry(grant);
  }

  private renew(grant: Grant, ttl: number): void {
    const sentAt = currentInstant();
    const [pending] = this.queues.renew({ names: grant.names, ticket: grant.ticket, ttl });
    this.queues.send(
      'renew',
      this.names,
      pending,
      (answer) => {
        if (this.grant !== grant || grant.holder) return;
        if (answer.status !== 'renewed') return this.lostBeforeEntry(grant);
        grant.renewed(sentAt, answer.remaining);
        this.serve(grant);
      },
      (error) => this.unusable(grant, error),
    );
  }

  /** The next caller cannot be let in yet: tried again until the lease ends. */
  private unusable(grant: Grant, error: LockBackendError): void {
    this.minting = false;
    if (this.grant !== grant) return this.retryServe();
    if (grant.holder) return;
    this.error = error;
    if (grant.remaining() <= 0) {
      this.queues.abandon(this.name, grant.ticket, grant.longest);
      return this.lostBeforeEntry(grant);
    }
    this.refuseOverdue();
    if (!this.callers.first) return this.giveUp(grant);
    setTimeout(() => {
      if (this.grant === grant && !grant.holder) this.serve(grant);
    }, this.backOff()).unref();
  }

  /** A later grant may have waited for a request that was made for an earlier one. */
  private retryServe(): void {
    if (this.grant && !this.grant.holder) this.serve(this.grant);
  }

  /** Nobody held it: no loss for a caller. */
  private lostBeforeEntry(grant: Grant): void {
    this.drop(grant);
    this.goOn();
  }

  private drop(grant: Grant): void {
    this.queues.forget(grant.ticket);
    this.queues.watchdog.unwatch(grant);
    this.grant = undefined;
  }

  /** Gives back what no caller waits for. */
  private giveUp(grant: Grant): void {
    this.queues.releaser.track(this.release(grant));
  }

  /** The name stays taken: no caller has it next, and those who wait ask anew. */
  private keep(grant: Grant): Promise<ReleaseOutcome> {
    const outcome = this.release(grant);
    this.goOn();
    return outcome;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    this.queues.forgetIdle(this);
    return this.queues.releaser.release(grant);
  }

  /** Passes the name to another process and queues again, in one round trip. */
  private requeue(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    const claim = claimOf((this.callers.first as Caller).options.ttl);
    const attempt = this.begin(true, claim);
    const tickets = { ticket: grant.ticket, again: attempt.ticket };
    return new Promise((resolve) => {
      this.queues.send(
        'release',
        this.names,
        this.queues.backend.requeue({ prefix: this.queues.prefix, name: this.name, ...tickets, claim }),
        (answer) => {
          if (answer.status !== 'not-owner') {
            this.answered(attempt, attempt.base, answer);
            return resolve('released');
          }
          // Carried out the first time it was sent, and a message told of the grant.
          if (this.grant?.ticket === attempt.ticket) return resolve('released');
          if (answer.resent) this.queues.abandon(this.name, attempt.ticket, attempt.lease);
          if (this.attempt === attempt) {
            this.end(attempt);
            this.goOn();
          }
          resolve(answer.resent ? 'released' : 'taken');
        },
        (error) => {
          this.queues.releaser.repeatUntilConfirmed(grant);
          this.failed(attempt, error);
          resolve('unconfirmed');
        },
      );
    });
  }

  /** Asks anew for those who still wait. */
  private goOn(): void {
    if (this.attempt || this.grant || this.pause) return;
    if (this.callers.first) this.enqueue();
    else this.queues.forgetIdle(this);
  }

  /** The answer is there that they waited for, and it is not for them. */
  private refuseOverdue(): void {
    this.overdue = false;
    for (const caller of this.callers.toArray()) {
      if (caller.triesOnce || caller.overdue) caller.refuse(this.refusal(caller.budget.waited()));
    }
  }

  private backOff(): number {
    return backOffAfter(this.failures++);
  }
}
