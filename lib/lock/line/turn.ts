import type { LockLostReason } from '../../errors/lock-errors.js';
import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import { currentInstant, type Instant } from '../../timing/clock.js';
import { Lingering, type Grant } from '../grant/grant.js';
import { GONE, Lease, RELEASED, type LeaseSource, type ReleaseOutcome } from '../grant/lease.js';
import { LIMIT_STEP } from '../grant/releaser.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { LastRequest } from '../grant/store.js';
import { Attempt, claimOf, LONGEST_CLAIM } from './attempt.js';
import type { Caller } from './caller.js';
import { Contender } from './line.js';
import { grantedTooLate } from './polling.js';
import { HolderCheck, Preparation } from './preparation.js';

/** While another process waits, a turn ends after this number of holders, or of ms. */
const MOST_HOLDERS = 64;
export const LONGEST_TURN = 50;
/** One that waited for the turn is still served if it will probably end by then (ms); it would wait a round more. */
const LONGEST_WITH_LAST = 64;
/**
 * Where many processes wait, a turn that has served the callers that waited for it ends sooner: after its share of the
 * time (ms) of one turn for each process. It lasts for at least this time (ms), and this number of round trips, because
 * a hand-over takes one.
 */
const LONGEST_ROUND = 200;
const LEAST_TURN = 8;
const ROUND_TRIPS = 5;
/** Where waiters poll, the lock is free for some ms after a turn: as many holders as are served in that time. */
const MOST_HOLDERS_WHERE_POLLED = 512;
/** A caller is admitted with at least this share of its claim left; a shorter lease is renewed first. */
export const LEAST_SHARE = 1 / 4;
/** No caller needs more lease (ms) than this to be admitted. */
const MOST_LEFT = LEAST_SHARE * LONGEST_CLAIM;
/** Reserves tokens when fewer are left; outside a turn, which ends soon, also when half of the last range is used. */
const FEW_TOKENS = 16;

/**
 * A contender that writes: passes what it was granted from caller to caller for one turn, then hands it over to another
 * process or releases it.
 */
export class WritingContender extends Contender implements LeaseSource {
  grant: Grant | undefined = undefined;
  /** When (monotonic, whole ms) its turn began. */
  private grantedAt = 0;
  private holders = 0;
  /** Whether another process waits for the name, or may wait for it where the backend cannot know. */
  private wanted = false;
  /** How many tickets of other processes waited at its begin; `undefined` where the backend cannot know. */
  private waiting: number | undefined = 0;
  private check: HolderCheck | undefined = undefined;
  /** From whom the next holder gets the name, and since when it could; only while somebody listens. */
  declare private handOver: { readonly from?: LockCall; readonly at?: number } | undefined;
  declare private preparation: Preparation | undefined;
  /** Whether it looks at the end of this tick whether the grant is still unused. */
  declare private looksAfterThisTick: boolean | undefined;

  /** The grant has neither holder nor caller for the rest of a tick. */
  get available(): boolean {
    const { grant } = this;
    return grant !== undefined && !grant.holder && !this.first;
  }

  owns(ticket: string): boolean {
    return this.grant?.ticket === ticket;
  }

  begin(grant: Grant, waiting: number | undefined, startedAt?: Instant): void {
    grant.listener = this;
    this.grant = grant;
    this.grantedAt = Math.floor(performance.now());
    this.holders = 0;
    if (this.preparation) this.preparation.renewedFor = Infinity;
    this.wanted = waiting !== 0;
    this.waiting = waiting;
    // A message, not an answer, reported the grant.
    if (lockChannels.handedOver.hasSubscribers) this.handOver = startedAt === undefined ? {} : undefined;
    this.serve(grant, startedAt);
  }

  protected joined(grant: Grant, available: boolean): void {
    if (available) this.serve(grant);
    else this.stayInformed();
  }

  /** Admits the next caller; first reserves a token where none is left, and renews a lease that is too short. */
  serve(grant: Grant, startedAt?: Instant): void {
    const caller = this.first;
    if (!caller) this.giveUp(grant);
    else if (grant.tokens === 0) this.prepared().mint(grant);
    else {
      const remaining = grant.remaining();
      const { options } = caller;
      const triesOnce = options.wait === 0;
      if (triesOnce ? remaining > 0 : remaining >= MOST_LEFT || remaining >= this.leastLease(options.ttl)) {
        this.admit(grant, caller, remaining, startedAt);
      } else if (triesOnce) {
        caller.refuse(grantedTooLate(this.backend, grant.names, options));
        this.serve(grant);
      } else this.prepared().renew(grant, options.ttl);
    }
  }

  /** A holder has ended: the next caller gets the grant, or another process the name. */
  takeBack(lease: Lease, atOnce: boolean, trusted = lease.held): Promise<ReleaseOutcome> {
    const { grant } = this;
    if (!grant || grant.holder !== lease) return GONE;
    if (!trusted) {
      lease.expire();
      return GONE;
    }
    lease.markReleased();
    grant.holder = undefined;
    if (grant.minHoldUntil && grant.inMinHold) return this.releaseInMinHold(grant);
    this.holders += 1;
    const next = this.first;
    const turnEnds = this.wanted && this.isOver(next);
    const othersWait = this.wanted && this.waiting !== undefined;
    if (turnEnds && othersWait) this.giveWay();
    if (next) {
      if (turnEnds) return this.requeue(grant, next);
      if (lockChannels.handedOver.hasSubscribers && lease.endedBy) {
        this.handOver = { from: lease.endedBy, at: performance.now() };
      }
      this.serve(grant);
      return RELEASED;
    }
    if (lease.options.linger > 0 && !this.wanted && this.mayLinger(grant)) return this.linger(grant, lease.options);
    if (atOnce || turnEnds || !othersWait || this.single) return this.release(grant);
    this.releaseAfterThisTick();
    return RELEASED;
  }

  endBy(lease: Lease, by: LastRequest): Promise<ReleaseOutcome> | undefined {
    const { grant } = this;
    if (!grant || grant.holder !== lease || this.first || !lease.held) return undefined;
    return this.backend.releaser.releaseBy(grant, by, () => {
      if (this.grant !== grant || grant.holder !== lease || lease.isLost) return;
      lease.markReleased();
      grant.holder = undefined;
      this.drop(grant);
      this.goOn();
    });
  }

  /** Asks for the next callers: readers of this process keep the grant. */
  leaveToReaders(lease: Lease): void {
    const { grant } = this;
    if (grant?.holder !== lease) return;
    const { granted } = this;
    if (granted?.ticket === grant.ticket) granted.leftToReaders = true;
    this.forgetTicket(grant.ticket);
    this.grant = undefined;
    this.goOn();
  }

  /** Asks for the next callers at once, although the holder may still run. */
  leaseLost(lease: Lease, reason: LockLostReason): void {
    const { grant } = this;
    if (grant?.holder === lease) this.lost(grant, reason);
  }

  wantedElsewhere(ticket: string): void {
    if (this.grant?.ticket !== ticket) return;
    this.wanted = true;
    if (this.lingers) this.handBack();
  }

  resume(): boolean {
    const { grant } = this;
    if (!grant || !(grant.holder instanceof Lingering)) return true;
    if (grant.remaining() < this.leastLease(grant.holder.options.ttl)) {
      this.handBack();
      return false;
    }
    this.endLinger(grant);
    grant.holder = undefined;
    return true;
  }

  handBack(): void {
    const { grant } = this;
    if (grant?.holder instanceof Lingering) this.backend.releaser.inBackground(grant.names, this.release(grant));
  }

  /** The grant has ended, while a caller had it or while it lingered: its turn is over. */
  lost(grant: Grant, reason: LockLostReason): void {
    if (this.wanted) this.giveWay();
    this.drop(grant);
    if (reason !== 'taken') this.backend.releaser.abandon(grant, grant.longest);
    this.goOn();
  }

  disowned(grant: Grant): void {
    if (grant.holder) return grant.lose('taken');
    // Without a holder, no caller has lost a lock.
    this.drop(grant);
    this.goOn();
  }

  protected giveUpUnused(): void {
    const { grant } = this;
    this.check?.stop();
    if (grant && !grant.holder) this.giveUp(grant);
  }

  giveUp(grant: Grant): void {
    this.backend.releaser.track(this.release(grant));
  }

  private admit(grant: Grant, caller: Caller, remaining: number, startedAt?: Instant): void {
    caller.leaveQueue();
    const lease = new Lease(grant, this, caller.options, startedAt);
    this.contenders.backend.watchdog.watch(grant, remaining);
    const lingers = caller.options.linger > 0 && this.mayLinger(grant);
    const others = this.first !== undefined;
    if (others) this.stayInformed();
    if (lingers || others) {
      const few = this.wanted ? FEW_TOKENS : Math.max(FEW_TOKENS, grant.reserved / 2);
      if (grant.tokens < few) this.prepared().mint(grant);
    }
    if (this.overdue) this.refuseOverdue();
    if (this.handOver) this.publishHandOver(this.handOver, caller);
    caller.served?.admitted(lease);
  }

  /**
   * Whether a message of anybody who waits since the grant would have arrived. Opens the channel, so that the next
   * grant may linger.
   */
  private mayLinger(grant: Grant): boolean {
    const { channel, lingering } = this.contenders;
    if (!channel.isOpen) void channel.open();
    return lingering && !channel.deaf && channel.openedAt <= grant.since;
  }

  /** Keeps the name for the next caller of this process, until another process wants it. */
  private linger(grant: Grant, { ttl, linger }: ResolvedLockOptions): Promise<ReleaseOutcome> {
    const left = grant.remaining() - this.leastLease(ttl);
    // In steps, because `Timeouts` shares a timer among equal durations.
    const lasts = left >= linger ? linger : Math.floor(left / LIMIT_STEP) * LIMIT_STEP;
    if (lasts <= 0) return this.release(grant);
    grant.holder = new Lingering(grant, this, { ttl, lasts }, this.backend.calls.timeouts);
    this.lingers = true;
    return RELEASED;
  }

  private endLinger({ holder }: Grant): void {
    if (!(holder instanceof Lingering)) return;
    holder.end();
    this.lingers = false;
  }

  private publishHandOver({ from, at }: NonNullable<WritingContender['handOver']>, { call }: Caller): void {
    this.handOver = undefined;
    const latency = at === undefined ? undefined : performance.now() - at;
    lockChannels.handedOver.publish({ call, from, latency });
  }

  /** How much lease (ms) must be left to admit a caller. */
  private leastLease(ttl: number): number {
    const longest = this.preparation ? this.preparation.renewedFor : Infinity;
    return LEAST_SHARE * Math.min(LONGEST_CLAIM, ttl, longest);
  }

  private prepared(): Preparation {
    return (this.preparation ??= new Preparation(this));
  }

  /** A caller waits behind a holder of this process: checks from time to time that the holder still owns the name. */
  private stayInformed(): void {
    (this.check ??= new HolderCheck(this)).start();
  }

  /** Whether the turn has had its holders or its time: see `LONGEST_ROUND`. */
  private isOver(next: Caller | undefined): boolean {
    if (this.holders >= this.mostHolders) return true;
    const elapsed = performance.now() - this.grantedAt;
    // The callers that waited for this turn come first.
    const waited = next !== undefined && next.startedAt < this.grantedAt;
    if (elapsed >= LONGEST_TURN) return !waited || elapsed + elapsed / this.holders > LONGEST_WITH_LAST;
    if (waited) return false;
    const { roundTrip } = this.contenders;
    return elapsed >= Math.max(LEAST_TURN, LONGEST_ROUND / (1 + (this.waiting ?? 0)), ROUND_TRIPS * roundTrip);
  }

  private get mostHolders(): number {
    return this.contenders.queue.pace ? MOST_HOLDERS_WHERE_POLLED : MOST_HOLDERS;
  }

  /** Callers of this process that come now ask after those of others, where no queue puts them in order. */
  private giveWay(): void {
    const { contenders, name } = this;
    contenders.queue.giveWay?.({ name });
  }

  /** The turn has ended: hands the name over to another process and waits again under a new ticket, in one request. */
  private requeue(grant: Grant, next: Caller): Promise<ReleaseOutcome> {
    this.drop(grant);
    const claim = claimOf(this, next.options.ttl);
    const { backend, contenders, name, names } = this;
    const { calls, releaser } = backend;
    const sentAt = currentInstant();
    const attempt = (this.attempt = new Attempt(this, true, sentAt, claim));
    const request = { name, ticket: grant.ticket, again: attempt.ticket, claim };
    return releaser.ending(grant, (resolve) => {
      const ended = (outcome: ReleaseOutcome) => releaser.ended(grant, resolve, outcome);
      calls.send(
        'release',
        names,
        () => contenders.queue.requeue(request),
        (answer) => {
          if (answer.status !== 'not-owner') {
            attempt.answered(sentAt, answer);
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

  /**
   * Keeps the name until the end of this tick, although another process waits: a caller that asks again within the tick
   * gets it for the rest of the turn. A hand-over after every hold would cost all processes more than one after a turn.
   */
  private releaseAfterThisTick(): void {
    if (this.looksAfterThisTick) return;
    this.looksAfterThisTick = true;
    process.nextTick(() => {
      this.looksAfterThisTick = false;
      const { grant } = this;
      if (grant && !grant.holder && !this.first) this.giveUp(grant);
    });
  }

  /** The name stays taken until its minimum hold ends, so the callers that wait ask again. */
  private releaseInMinHold(grant: Grant): Promise<ReleaseOutcome> {
    const outcome = this.release(grant);
    this.goOn();
    return outcome;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    const { contenders } = this;
    this.drop(grant);
    if (!this.first && !this.attempt) contenders.remove(this);
    return contenders.backend.releaser.release(grant);
  }

  private drop(grant: Grant): void {
    if (this.lingers) this.endLinger(grant);
    if (this.single) this.forgetTicket(grant.ticket);
    this.contenders.backend.watchdog.unwatch(grant);
    this.grant = undefined;
  }
}
