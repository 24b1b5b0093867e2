import type { QueueAnswer, TokenRange } from '../../contracts/lock-backend.js';
import { Grant, type GrantListener } from '../lease/grant.js';
import { Lease, type LeaseKeeper } from '../lease/lease.js';
import { currentInstant, type Instant } from '../lease/lease-clock.js';
import type { LockBackendError, LockLostReason } from '../../errors/lock-errors.js';
import { RELEASED, type ReleaseOutcome } from '../lease/releaser.js';
import type { Asking } from './asking.js';
import type { Caller } from './caller.js';
import { claimOf, leastToEnter } from './claim.js';
import type { Contender } from './contender.js';
import { HolderCheck } from './holder-check.js';
import type { LockQueues } from './lock-queues.js';

type Granted = Extract<QueueAnswer, { status: 'granted' }>;

/** How many holders of one process in a row may hold a lock that another process waits for, and for how long (ms). */
const TURN = 64;
const LONGEST_TURN = 50;
/**
 * In a turn, which ends soon, further tokens are reserved when fewer are left; else also when half of the last ones are
 * used.
 */
const FEW_TOKENS = 16;

const GONE = Promise.resolve<ReleaseOutcome>('gone');

/**
 * What a contender does with a name that this process owns: passes it from caller to caller, and at last on to others.
 */
export class Turn implements LeaseKeeper, GrantListener {
  grant: Grant | undefined;
  private grantedAt = 0;
  private passes = 0;
  private wanted = false;
  private minting = false;
  private check: HolderCheck | undefined;

  constructor(
    private readonly contender: Contender,
    private readonly asking: Asking,
    private readonly queues: LockQueues,
    private readonly names: readonly [string],
  ) {}

  /** One more caller waits; with `kept`, the grant is there for it. */
  joined(grant: Grant, kept: boolean): void {
    if (kept) this.serve(grant);
    else this.stayInformed();
  }

  wantedElsewhere(ticket: string): void {
    if (this.grant?.ticket === ticket) this.wanted = true;
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
    const next = this.contender.callers.first;
    if (next) {
      if (turnEnds) return this.requeue(grant, next);
      this.serve(grant);
      return RELEASED;
    }
    if (atOnce || turnEnds || !this.wanted || this.contender.single) return this.release(grant);
    this.keepForThisTick(grant);
    return RELEASED;
  }

  /**
   * Others wait elsewhere, so that the lock does not fall free in any case. A caller that asks for it again at once has
   * it for the rest of the turn: to pass it on for every single hold costs all of them more than to wait for a turn.
   */
  private keepForThisTick(grant: Grant): void {
    const tickOver = new Promise<void>((resolve) => process.nextTick(resolve));
    this.queues.releaser.track(
      tickOver.then(() => {
        if (this.grant === grant && this.contender.keeps) return this.release(grant);
        return undefined;
      }),
    );
  }

  /** The rest of the callers need not wait until the holder has noticed. */
  leaseLost(lease: Lease, reason: LockLostReason): void {
    const { grant } = this;
    if (!grant || grant.holder !== lease) return;
    this.drop(grant);
    if (reason !== 'taken') this.queues.releaser.abandon(grant, grant.longest);
    this.contender.goOn();
  }

  /** The last caller has left. */
  quit(): void {
    const { grant } = this;
    this.check?.stop();
    if (grant && !grant.holder) this.giveUp(grant);
  }

  begin(
    ticket: string,
    base: Instant,
    { tokens, remaining, waiting }: Pick<Granted, 'tokens' | 'remaining' | 'waiting'>,
    startedAt?: Instant,
  ): void {
    const grant = new Grant(this.names, ticket, base, remaining, tokens);
    grant.listener = this;
    this.grant = grant;
    this.grantedAt = performance.now();
    this.passes = 0;
    this.wanted = waiting > 0;
    if (this.contender.callers.several) this.stayInformed();
    this.serve(grant, startedAt);
  }

  /**
   * Lets the next caller in; first renews a lease that is too short for it, and reserves a token where none is left.
   */
  private serve(grant: Grant, startedAt?: Instant): void {
    const caller = this.contender.callers.first;
    if (!caller) this.giveUp(grant);
    else if (grant.tokens === 0) this.mint(grant);
    else if (caller.triesOnce && grant.remaining() > 0) this.admit(grant, caller, startedAt);
    else if (caller.triesOnce) {
      caller.refuse(this.queues.tooLate(this.contender.name, caller.options.ttl));
      this.serve(grant);
    } else if (grant.remaining() < leastToEnter(caller.options.ttl)) this.renew(grant, caller.options.ttl);
    else this.admit(grant, caller, startedAt);
  }

  private admit(grant: Grant, caller: Caller, startedAt?: Instant): void {
    caller.place?.leave();
    const lease = new Lease(grant, this, caller.options, startedAt);
    this.queues.watchdog.watch(grant);
    const few = this.wanted ? FEW_TOKENS : Math.max(FEW_TOKENS, grant.reserved / 2);
    if (grant.tokens < few && this.contender.callers.first) this.mint(grant);
    this.contender.refuseIfOverdue();
    caller.admit(lease);
  }

  /** Somebody waits behind a holder of this process. */
  private stayInformed(): void {
    this.check ??= new HolderCheck(this, this.contender, this.queues);
    this.check.start();
  }

  private mint(grant: Grant): void {
    if (this.minting) return;
    this.minting = true;
    const { name } = this.contender;
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
    this.contender.error = error;
    if (grant.remaining() <= 0) {
      this.queues.abandon(this.contender.name, grant.ticket, grant.longest);
      return this.lostBeforeEntry(grant);
    }
    this.contender.refuseOverdue();
    if (!this.contender.callers.first) return this.giveUp(grant);
    setTimeout(() => {
      if (this.grant === grant && !grant.holder) this.serve(grant);
    }, this.contender.backOff()).unref();
  }

  /** A later grant may have waited for a request that was made for an earlier one. */
  private retryServe(): void {
    if (this.grant && !this.grant.holder) this.serve(this.grant);
  }

  /** Nobody held it: no loss for a caller. */
  private lostBeforeEntry(grant: Grant): void {
    this.drop(grant);
    this.contender.goOn();
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
    this.contender.goOn();
    return outcome;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    this.queues.forgetIdle(this.contender);
    return this.queues.releaser.release(grant);
  }

  /** The turn is over: passes the name to another process, and queues again. */
  private requeue(grant: Grant, next: Caller): Promise<ReleaseOutcome> {
    this.drop(grant);
    return this.asking.requeue(grant, claimOf(next.options.ttl));
  }
}
