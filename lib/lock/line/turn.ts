import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import { Grant, type GrantListener } from '../grant/grant.js';
import { Lease, type LeaseSource, RELEASED, type ReleaseOutcome } from '../grant/lease.js';
import { type Instant, currentInstant } from '../../timing/clock.js';
import type { LockLostReason } from '../../errors/lock-errors.js';
import type { Releaser } from '../grant/releaser.js';
import { claimOf, giveWay, LONGEST_CLAIM, type Attempts } from './attempts.js';
import type { Caller } from './caller.js';
import type { CallerTurn, Contention, GrantedLease } from './line.js';
import { Preparation, type PreparedTurn } from './preparation.js';
import { grantedTooLate } from './polling.js';

/** While another process waits, a turn ends after this number of holders, or of ms. */
const MOST_HOLDERS = 64;
const LONGEST_TURN = 50;
/** Where waiters poll, the lock is free for some ms after a turn: as many holders as are served in that time. */
const MOST_HOLDERS_WHERE_POLLED = 512;
/** A caller is admitted with at least this share of its claim left; a shorter lease is renewed first. */
const LEAST_SHARE = 1 / 4;
/** Reserves tokens when fewer are left; outside a turn, which ends soon, also when half of the last range is used. */
const FEW_TOKENS = 16;

const GONE = Promise.resolve<ReleaseOutcome>('gone');

/** The grant of a contender: passes it from caller to caller, then hands it over to another process or releases it. */
export class Turn implements CallerTurn, LeaseSource, GrantListener, PreparedTurn {
  grant: Grant | undefined;
  private grantedAt = 0;
  private holders = 0;
  /** Whether another process waits for the name, or may wait for it where the backend cannot know. */
  private wanted = false;
  /** Whether the backend knows who waits. */
  private informed = true;
  private check: HolderCheck | undefined;
  /** From whom the next holder gets the name, and since when it could; only while somebody listens. */
  private handOver: { readonly from?: LockCall; readonly at?: number } | undefined;
  private preparation: Preparation | undefined;

  constructor(
    private readonly contention: Contention,
    private readonly attempts: Attempts,
  ) {}

  private get mostHolders(): number {
    return this.contention.place.queue.pace ? MOST_HOLDERS_WHERE_POLLED : MOST_HOLDERS;
  }

  /** It owns the name for the rest of a tick, with neither holder nor caller. */
  get available(): boolean {
    const { grant } = this;
    return grant !== undefined && !grant.holder && !this.contention.callers.first;
  }

  get empty(): boolean {
    return this.grant === undefined;
  }

  owns(ticket: string): boolean {
    return this.grant?.ticket === ticket;
  }

  joined(grant: Grant, available: boolean): void {
    if (available) this.serve(grant);
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
      this.wanted && (this.holders >= this.mostHolders || performance.now() - this.grantedAt >= LONGEST_TURN);
    const othersWait = this.wanted && this.informed;
    if (turnEnds && othersWait) giveWay(this.contention);
    const next = this.contention.callers.first;
    if (next) {
      if (turnEnds) return this.requeue(grant, next);
      if (lockChannels.handedOver.hasSubscribers && lease.endedBy) {
        this.handOver = { from: lease.endedBy, at: performance.now() };
      }
      this.serve(grant);
      return RELEASED;
    }
    if (atOnce || turnEnds || !othersWait || this.contention.single) return this.release(grant);
    this.releaseAfterThisTick(grant);
    return RELEASED;
  }

  /**
   * Keeps the name until the end of this tick, although another process waits: a caller that asks again within the tick
   * gets it for the rest of the turn. A hand-over after every hold would cost all processes more than one after a turn.
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

  /** Asks for the next callers: readers of this process keep the grant. */
  leaveToReaders(lease: Lease): void {
    const { grant } = this;
    if (grant?.holder !== lease) return;
    this.attempts.leaveToReaders(grant);
    this.contention.forgetTicket(grant.ticket);
    this.grant = undefined;
    this.contention.goOn();
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

  begin(ticket: string, base: Instant, { tokens, remaining, waiting }: GrantedLease, startedAt?: Instant): void {
    const grant = new Grant(this.contention.names, ticket, base, remaining, tokens);
    grant.listener = this;
    this.grant = grant;
    this.grantedAt = performance.now();
    this.holders = 0;
    if (this.preparation) this.preparation.renewedFor = Infinity;
    this.wanted = waiting !== 0;
    // A message, not an answer, reported the grant.
    this.handOver = lockChannels.handedOver.hasSubscribers && startedAt === undefined ? {} : undefined;
    this.informed = waiting !== undefined;
    if (this.contention.callers.several) this.stayInformed();
    this.serve(grant, startedAt);
  }

  /** Admits the next caller; first reserves a token where none is left, and renews a lease that is too short. */
  serve(grant: Grant, startedAt?: Instant): void {
    const caller = this.contention.callers.first;
    if (!caller) this.giveUp(grant);
    else if (grant.tokens === 0) this.prepared().mint(grant);
    else if (caller.triesOnce && grant.remaining() > 0) this.admit(grant, caller, startedAt);
    else if (caller.triesOnce) {
      caller.refuse(grantedTooLate(this.contention.place.backend, grant.names, caller.options));
      this.serve(grant);
    } else if (this.isTooShort(grant, caller.options.ttl)) this.prepared().renew(grant, caller.options.ttl);
    else this.admit(grant, caller, startedAt);
  }

  private admit(grant: Grant, caller: Caller, startedAt?: Instant): void {
    caller.place?.leave();
    const lease = new Lease(grant, this, caller.options, startedAt);
    this.contention.place.backend.watchdog.watch(grant);
    const few = this.wanted ? FEW_TOKENS : Math.max(FEW_TOKENS, grant.reserved / 2);
    if (grant.tokens < few && this.contention.callers.first) this.prepared().mint(grant);
    this.contention.refuseIfOverdue();
    if (this.handOver) this.publishHandOver(this.handOver, caller);
    caller.admit(lease);
  }

  private publishHandOver({ from, at }: NonNullable<Turn['handOver']>, { call }: Caller): void {
    this.handOver = undefined;
    const latency = at === undefined ? undefined : performance.now() - at;
    lockChannels.handedOver.publish({ call, from, latency });
  }

  /** A caller waits behind a holder of this process: checks from time to time that the holder still owns the name. */
  private stayInformed(): void {
    (this.check ??= new HolderCheck(this, this.contention)).start();
  }

  /** Whether too little of the lease is left to admit a caller. */
  private isTooShort(grant: Grant, ttl: number): boolean {
    const longest = this.preparation ? this.preparation.renewedFor : Infinity;
    return grant.remaining() < LEAST_SHARE * Math.min(LONGEST_CLAIM, ttl, longest);
  }

  private prepared(): Preparation {
    return (this.preparation ??= new Preparation(this, this.contention));
  }

  disowned(grant: Grant): void {
    if (grant.holder) grant.lose('taken');
    else this.lostBeforeEntry(grant);
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
  giveUp(grant: Grant): void {
    this.releaser.track(this.release(grant));
  }

  /** The name stays taken until its minimum hold ends, so the callers that wait ask again. */
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

/** How often (ms) it asks the backend, for messages that were lost. */
const PERIOD = 500;
/** How often (ms) where there are no messages, so that a turn ends soon after another process has begun to wait. */
const PERIOD_WITHOUT_MESSAGES = 50;

/** The turn whose grant is checked. */
export interface CheckedTurn {
  readonly grant: Grant | undefined;
  wantedElsewhere(ticket: string): void;
  /** The backend has answered that the ticket of the grant does not own the name. */
  disowned(grant: Grant): void;
}

/**
 * While callers wait behind a holder of their own process, asks the backend whether the process still owns the name and
 * whether another one waits for it: no message tells of a foreign `DEL`, and messages may be lost. Holders that await
 * nothing leave the event loop no time until the tokens are used up, so that it asks also between two holders.
 */
export class HolderCheck {
  private timer: NodeJS.Timeout | undefined;
  private readonly period: number;

  constructor(
    private readonly turn: CheckedTurn,
    private readonly contention: Contention,
  ) {
    this.period = contention.place.queue.pace ? PERIOD_WITHOUT_MESSAGES : PERIOD;
  }

  start(): void {
    this.timer ??= this.arm();
    const { channel } = this.contention.place;
    if (!channel.tried) void channel.open().then(() => this.look());
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private arm(): NodeJS.Timeout {
    return setTimeout(() => {
      this.timer = undefined;
      if (this.look()) this.timer = this.arm();
    }, this.period).unref();
  }

  /** Answers `false` when no caller waits. */
  private look(): boolean {
    const { grant } = this.turn;
    if (!grant || !this.contention.callers.first) return false;
    const { channel } = this.contention.place;
    if (!channel.isOpen) void channel.open();
    this.confirm(grant);
    return true;
  }

  private confirm(grant: Grant): void {
    const { contention, turn } = this;
    const { names, ticket, holder } = grant;
    const sentAt = currentInstant();
    contention.place.backend.calls.sendRenewal(
      { names, ticket, ttl: holder?.options.renewal ? holder.options.ttl : 1 },
      (answer) => {
        if (turn.grant !== grant) return;
        contention.error = undefined;
        if (answer.status !== 'renewed') return turn.disowned(grant);
        grant.renewed(sentAt, answer.remaining);
        if (answer.waiting) turn.wantedElsewhere(ticket);
      },
      (error) => {
        if (turn.grant === grant) contention.error = error;
      },
    );
  }
}
