import type { TokenRange } from '../../contracts/lock-backend.js';
import { Grant, type GrantListener } from '../lease/grant.js';
import { Lease, type LeaseSource } from '../lease/lease.js';
import { currentInstant, type Instant } from '../lease/lease-clock.js';
import type { LockBackendError, LockLostReason } from '../../errors/lock-errors.js';
import type { Releaser } from '../lease/releaser.js';
import { RELEASED, type ReleaseOutcome } from '../lease/release-outcome.js';
import { claimOf, LONGEST_CLAIM } from './attempt.js';
import type { Attempts } from './attempts.js';
import type { Caller } from './caller.js';
import type { Contention, Granted } from './contention.js';
import { HolderCheck } from './holder-check.js';
import { grantedTooLate } from './refusals.js';

/** While another process waits, a turn ends after this number of holders, or of ms. */
const MOST_HOLDERS = 64;
const LONGEST_TURN = 50;
/** A caller is admitted with at least this share of its claim left; a shorter lease is renewed first. */
const LEAST_SHARE = 1 / 4;
/** Reserves tokens when fewer are left; outside a turn, which ends soon, also when half of the last range is used. */
const FEW_TOKENS = 16;

const GONE = Promise.resolve<ReleaseOutcome>('gone');

/** The grant of a contender: passes it from caller to caller, then hands it over to another process or releases it. */
export class Turn implements LeaseSource, GrantListener {
  grant: Grant | undefined;
  private grantedAt = 0;
  private holders = 0;
  /** Whether another process waits for the name. */
  private wanted = false;
  private minting = false;
  private check: HolderCheck | undefined;

  constructor(
    private readonly contention: Contention,
    private readonly attempts: Attempts,
  ) {}

  /** One more caller waits; the grant is free for it when it is `unused`. */
  joined(grant: Grant, unused: boolean): void {
    if (unused) this.serve(grant);
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
    if (grant.inMinHold) return this.releaseInMinHold(grant);
    this.holders += 1;
    const turnEnds =
      this.wanted && (this.holders >= MOST_HOLDERS || performance.now() - this.grantedAt >= LONGEST_TURN);
    const next = this.contention.callers.first;
    if (next) {
      if (turnEnds) return this.requeue(grant, next);
      this.serve(grant);
      return RELEASED;
    }
    if (atOnce || turnEnds || !this.wanted || this.contention.single) return this.release(grant);
    this.releaseAfterThisTick(grant);
    return RELEASED;
  }

  /**
   * Another process waits, so that the name will not fall free. A caller that asks again within this tick gets it for
   * the rest of the turn: a hand-over after every hold would cost all processes more than waiting for a turn.
   */
  private releaseAfterThisTick(grant: Grant): void {
    const tickOver = new Promise<void>((resolve) => process.nextTick(resolve));
    this.releaser.track(
      tickOver.then(() => {
        const unused = this.grant === grant && !grant.holder && !this.contention.callers.first;
        return unused ? this.release(grant) : undefined;
      }),
    );
  }

  /** Asks for the next callers at once, although the holder may still run. */
  leaseLost(lease: Lease, reason: LockLostReason): void {
    const { grant } = this;
    if (!grant || grant.holder !== lease) return;
    this.drop(grant);
    if (reason !== 'taken') this.releaser.abandon(grant, grant.longest);
    this.contention.goOn();
  }

  /** The last caller has left. */
  quit(): void {
    const { grant } = this;
    this.check?.stop();
    if (grant && !grant.holder) this.giveUp(grant);
  }

  begin(ticket: string, base: Instant, { tokens, remaining, waiting }: Granted, startedAt?: Instant): void {
    const grant = new Grant(this.contention.names, ticket, base, remaining, tokens);
    grant.listener = this;
    this.grant = grant;
    this.grantedAt = performance.now();
    this.holders = 0;
    this.wanted = waiting > 0;
    if (this.contention.callers.several) this.stayInformed();
    this.serve(grant, startedAt);
  }

  /** Admits the next caller; first reserves a token where none is left, and renews a lease that is too short. */
  private serve(grant: Grant, startedAt?: Instant): void {
    const caller = this.contention.callers.first;
    if (!caller) this.giveUp(grant);
    else if (grant.tokens === 0) this.mint(grant);
    else if (caller.triesOnce && grant.remaining() > 0) this.admit(grant, caller, startedAt);
    else if (caller.triesOnce) {
      caller.refuse(grantedTooLate(this.contention.place.backend, grant.names, caller.options.ttl));
      this.serve(grant);
    } else if (tooShort(grant, caller.options.ttl)) this.renew(grant, caller.options.ttl);
    else this.admit(grant, caller, startedAt);
  }

  private admit(grant: Grant, caller: Caller, startedAt?: Instant): void {
    caller.place?.leave();
    const lease = new Lease(grant, this, caller.options, startedAt);
    this.contention.place.backend.watchdog.watch(grant);
    const few = this.wanted ? FEW_TOKENS : Math.max(FEW_TOKENS, grant.reserved / 2);
    if (grant.tokens < few && this.contention.callers.first) this.mint(grant);
    this.contention.refuseIfOverdue();
    caller.admit(lease);
  }

  /** A caller waits behind a holder of this process: checks from time to time that the holder still owns the name. */
  private stayInformed(): void {
    this.check ??= new HolderCheck(this, this.contention);
    this.check.start();
  }

  private mint(grant: Grant): void {
    if (this.minting) return;
    this.minting = true;
    this.contention.place.queue.mint(
      this.contention.names,
      grant.ticket,
      0,
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
    const { names, ticket } = grant;
    this.contention.place.backend.calls.sendRenewal(
      { names, ticket, ttl },
      (answer) => {
        if (this.grant !== grant || grant.holder) return;
        if (answer.status !== 'renewed') return this.lostBeforeEntry(grant);
        grant.renewed(sentAt, answer.remaining);
        this.serve(grant);
      },
      (error) => this.unusable(grant, error),
    );
  }

  /** A request for the next caller has failed: repeats it, after a pause, until the lease ends. */
  private unusable(grant: Grant, error: LockBackendError): void {
    this.minting = false;
    if (this.grant !== grant) return this.retryServe();
    if (grant.holder) return;
    this.contention.error = error;
    if (grant.remaining() <= 0) {
      this.releaser.abandon(grant, grant.longest);
      return this.lostBeforeEntry(grant);
    }
    this.contention.refuseOverdue();
    if (!this.contention.callers.first) return this.giveUp(grant);
    setTimeout(() => {
      if (this.grant === grant && !grant.holder) this.serve(grant);
    }, this.contention.backOff()).unref();
  }

  /** The request was made for an earlier grant; the present one may wait for it to end. */
  private retryServe(): void {
    if (this.grant && !this.grant.holder) this.serve(this.grant);
  }

  /** The grant was lost without a holder: no caller has lost a lock. */
  private lostBeforeEntry(grant: Grant): void {
    this.drop(grant);
    this.contention.goOn();
  }

  private drop(grant: Grant): void {
    this.contention.forgetTicket(grant.ticket);
    this.contention.place.backend.watchdog.unwatch(grant);
    this.grant = undefined;
  }

  /** Releases a grant that no caller waits for. */
  private giveUp(grant: Grant): void {
    this.releaser.track(this.release(grant));
  }

  /** The name stays taken until its minimum hold ends: the callers that wait ask anew. */
  private releaseInMinHold(grant: Grant): Promise<ReleaseOutcome> {
    const outcome = this.release(grant);
    this.contention.goOn();
    return outcome;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    this.contention.forgetIfIdle();
    return this.releaser.release(grant);
  }

  private get releaser(): Releaser {
    return this.contention.place.backend.releaser;
  }

  /** The turn has ended: hands the name over to another process, and waits again. */
  private requeue(grant: Grant, next: Caller): Promise<ReleaseOutcome> {
    this.drop(grant);
    return this.attempts.requeue(grant, claimOf(next.options.ttl));
  }
}

function tooShort(grant: Grant, ttl: number): boolean {
  return grant.remaining() < LEAST_SHARE * Math.min(LONGEST_CLAIM, ttl);
}
