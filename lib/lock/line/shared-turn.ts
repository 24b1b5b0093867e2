import type { LockLostError, LockLostReason } from '../../errors/lock-errors.js';
import type { LockCall } from '../../events/lock-channels.js';
import type { Instant } from '../../timing/clock.js';
import type { Grant, GrantHolder } from '../grant/grant.js';
import { GONE, Lease, RELEASED, type LeaseSource, type ReleaseOutcome } from '../grant/lease.js';
import type { Releaser } from '../grant/releaser.js';
import type { Watchdog } from '../grant/watchdog.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { LONGEST_CLAIM } from './attempt.js';
import type { Caller } from './caller.js';
import { Contender } from './line.js';
import { grantedTooLate } from './polling.js';
import { Preparation } from './preparation.js';
import { LEAST_SHARE, LONGEST_TURN } from './turn.js';

/**
 * How long (ms) callers join a grant before the next one asks the backend under a new ticket: so a message that a
 * writer waits may be lost, and a process whose readers were deleted at the backend lets nobody in for longer. While
 * another process waits, callers join for the `LONGEST_TURN` of a writer only.
 */
const LONGEST_UNCONFIRMED = 500;

/**
 * A contender that reads, with its grants: admits all callers at once to the current one until its turn is over. Then
 * the next caller asks under a new ticket, behind a writer that waits, and the former grant ends with its last holder.
 */
export class ReadingContender extends Contender {
  /** By ticket: the current one, and those whose turn is over. */
  private readonly grants = new Map<string, SharedGrant>();
  private current: SharedGrant | undefined = undefined;
  private wanted = false;
  /** Whether the backend knows who waits. */
  private informed = true;
  private preparation: Preparation | undefined = undefined;
  /** The grant that is renewed before its first caller enters. */
  private prepared: Grant | undefined = undefined;

  /** The grant that callers join now. Ends the turn that is over. */
  get grant(): Grant | undefined {
    const { current } = this;
    if (!current || current.grant === this.prepared || this.admits(current)) return current?.grant;
    this.endTurn(current);
    return undefined;
  }

  get available(): boolean {
    return this.grant !== undefined && !this.prepared;
  }

  /** Whether any grant is left: its holders may go on although its turn is over. */
  get used(): boolean {
    return this.grants.size > 0;
  }

  owns(ticket: string): boolean {
    return this.grants.has(ticket);
  }

  protected joined(grant: Grant): void {
    // The turn may have ended since the caller came.
    if (this.current?.grant !== grant) this.goOn();
    else if (grant !== this.prepared) this.serve(grant);
  }

  /** What reads does not linger. */
  resume(): boolean {
    return true;
  }

  handBack(): void {}

  wantedElsewhere(ticket: string): void {
    if (this.current?.grant.ticket === ticket) this.wanted = true;
  }

  begin(grant: Grant, waiting: number | undefined, startedAt?: Instant): void {
    this.current = this.keep(grant);
    this.wanted = waiting !== 0;
    this.informed = waiting !== undefined;
    this.serve(grant, startedAt);
  }

  /** Takes over the lease of an owner: its last hold that wrote has ended, and holds that read are left. */
  adopt(lease: Lease): void {
    this.keep(lease.grant).adopt(lease);
  }

  /** Admits all callers. */
  serve(grant: Grant, startedAt?: Instant): void {
    const { backend } = this;
    const shared = this.current as SharedGrant;
    this.prepared = undefined;
    for (let caller = this.first; caller; caller = this.first) {
      if (grant.tokens === 0) {
        this.prepared = grant;
        this.preparations.mint(grant);
        return;
      }
      if (caller.triesOnce && grant.remaining() <= 0) {
        caller.refuse(grantedTooLate(backend, grant.names, caller.options));
      } else if (!caller.triesOnce && !shared.used && this.isTooShort(grant)) {
        this.prepared = grant;
        this.preparations.renew(grant, caller.options.ttl);
        return;
      } else this.admit(shared, caller, startedAt);
    }
    if (this.overdue) this.refuseOverdue();
    if (!shared.used) this.giveUp(grant);
  }

  /** The last holder has released the grant. */
  unused(shared: SharedGrant, atOnce: boolean): Promise<ReleaseOutcome> {
    const { grant } = shared;
    if (atOnce || shared !== this.current || !this.wanted || !this.informed || !this.admits(shared)) {
      return this.release(grant);
    }
    // As a turn of writers does: a caller that asks again within this tick joins for the rest of the turn.
    const tickOver = new Promise<void>((resolve) => process.nextTick(resolve));
    const outcome = tickOver.then(() => (shared.used || !this.owns(grant.ticket) ? 'released' : this.release(grant)));
    this.releaser.track(outcome);
    return Promise.resolve('released');
  }

  /** The last holder has lost the grant. */
  lost({ grant }: SharedGrant, reason: LockLostReason): void {
    this.drop(grant);
    if (reason !== 'taken') this.releaser.abandon(grant, grant.longest);
    this.goOn();
  }

  disowned(grant: Grant): void {
    this.drop(grant);
    this.goOn();
  }

  giveUp(grant: Grant): void {
    this.releaser.track(this.release(grant));
  }

  override forgetIfIdle(): void {
    if (this.idle && !this.used) this.contenders.remove(this);
  }

  protected giveUpUnused(): void {
    const { current } = this;
    if (current && !current.used) this.giveUp(current.grant);
  }

  private admit(shared: SharedGrant, caller: Caller, startedAt?: Instant): void {
    caller.leaveQueue();
    const lease = shared.admit(caller.options, startedAt);
    shared.watch(lease, this.backend.watchdog);
    caller.served?.admitted(lease);
  }

  private admits({ grant, begunAt }: SharedGrant): boolean {
    const { channel } = this.contenders;
    const longest = this.wanted || !channel.isOpen ? LONGEST_TURN : LONGEST_UNCONFIRMED;
    return performance.now() - begunAt < longest && !this.isTooShort(grant);
  }

  private isTooShort(grant: Grant): boolean {
    return grant.remaining() < LEAST_SHARE * Math.min(LONGEST_CLAIM, grant.granted);
  }

  private get preparations(): Preparation {
    return (this.preparation ??= new Preparation(this));
  }

  private endTurn(shared: SharedGrant): void {
    const { channel } = this.contenders;
    if (!channel.isOpen) void channel.open();
    this.current = undefined;
    if (!shared.used) this.giveUp(shared.grant);
  }

  private keep(grant: Grant): SharedGrant {
    const shared = new SharedGrant(grant, this);
    grant.listener = this;
    this.grants.set(grant.ticket, shared);
    return shared;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    const outcome = this.releaser.release(grant);
    this.forgetIfIdle();
    return outcome;
  }

  private drop(grant: Grant): void {
    this.grants.delete(grant.ticket);
    if (this.current?.grant === grant) this.current = this.prepared = undefined;
    this.backend.watchdog.unwatch(grant);
  }

  private get releaser(): Releaser {
    return this.backend.releaser;
  }
}

/**
 * One registration as a reader, which any number of callers of this process hold at one time. Each has a lease with
 * its own limits; the grant is renewed as the most demanding of them asks, and released when the last has ended.
 */
class SharedGrant implements LeaseSource, GrantHolder {
  readonly begunAt = performance.now();
  private readonly leases = new Set<Lease>();
  /** The shortest interval of renewals (ms) that the watchdog knows of. */
  private shortest = Infinity;

  constructor(
    readonly grant: Grant,
    private readonly line: ReadingContender,
  ) {}

  /** Whether a caller holds it. */
  get used(): boolean {
    return this.leases.size > 0;
  }

  /** Another caller holds it. */
  admit(options: ResolvedLockOptions, startedAt?: Instant): Lease {
    const lease = new Lease(this.grant, this, options, startedAt, this.grant.sharedToken);
    this.add(lease);
    return lease;
  }

  /** Makes the watchdog renew the grant as this holder asks, too, and notice the end of its lease. */
  watch(lease: Lease, watchdog: Watchdog): void {
    const interval = lease.options.renewal?.interval ?? Infinity;
    const sooner = interval < this.shortest;
    if (sooner) this.shortest = interval;
    if (sooner || lease.outlastsGrant || this.grant.index < 0) return watchdog.watch(this.grant);
    if (lease.limits) watchdog.wakeNoLaterThan(performance.now() + lease.remaining());
    watchdog.renewIfShort(this.grant, lease);
  }

  /** A lease that its owner took to write is held by readers from now on. */
  adopt(lease: Lease): void {
    lease.becomeShared(this);
    this.add(lease);
  }

  private add(lease: Lease): void {
    this.leases.add(lease);
    this.grant.holder = this;
  }

  takeBack(lease: Lease, atOnce: boolean): Promise<ReleaseOutcome> {
    if (!this.leases.has(lease)) return GONE;
    if (!lease.held) {
      lease.expire();
      return GONE;
    }
    lease.markReleased();
    this.leases.delete(lease);
    return this.used ? RELEASED : this.line.unused(this, atOnce);
  }

  leaseLost(lease: Lease, reason: LockLostReason): void {
    if (this.leases.delete(lease) && !this.used) this.line.lost(this, reason);
  }

  /** The longest lease that a holder wants, and the shortest interval of renewals. */
  get options(): GrantHolder['options'] {
    let ttl = 0;
    let renewal: ResolvedLockOptions['renewal'];
    for (const { options } of this.leases) {
      ttl = Math.max(ttl, options.ttl);
      if (options.renewal && options.renewal.interval < (renewal?.interval ?? Infinity)) renewal = options.renewal;
    }
    return { ttl, renewal };
  }

  get limits(): boolean {
    return this.some((lease) => lease.limits !== undefined);
  }

  get outlastsGrant(): boolean {
    return this.some((lease) => lease.outlastsGrant);
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  /** Until the first of its holders loses its lease: the watchdog looks again then. */
  remaining(): number {
    let least = Infinity;
    for (const lease of this.leases) {
      const remaining = lease.remaining();
      if (remaining > 0) least = Math.min(least, remaining);
    }
    return least === Infinity ? 0 : least;
  }

  get fencingToken(): number {
    return this.grant.sharedToken;
  }

  /** The call of the first of its holders. */
  get call(): LockCall | undefined {
    const [first] = this.leases;
    return first?.call;
  }

  /** Set once the last holder has lost it. */
  get lost(): LockLostError | undefined {
    let error: LockLostError | undefined;
    for (const lease of this.leases) error = lease.lost;
    return this.used ? undefined : error;
  }

  lose(reason: LockLostReason): void {
    for (const lease of this.leases) lease.lose(reason);
  }

  private some(is: (lease: Lease) => boolean): boolean {
    for (const lease of this.leases) if (is(lease)) return true;
    return false;
  }
}
