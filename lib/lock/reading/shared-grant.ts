import type { LockLostError, LockLostReason } from '../../errors/lock-errors.js';
import type { LockCall } from '../../events/lock-channels.js';
import type { Instant } from '../../timing/instant.js';
import type { Grant, GrantHolder } from '../lease/grant.js';
import { Lease, type LeaseSource } from '../lease/lease.js';
import { RELEASED, type ReleaseOutcome } from '../lease/release-outcome.js';
import type { Watchdog } from '../lease/watchdog.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';

const GONE = Promise.resolve<ReleaseOutcome>('gone');

/** What becomes of a grant that nobody of this process holds any more. */
export interface SharedGrantHost {
  /** The last holder has released it. */
  unused(shared: SharedGrant, atOnce: boolean): Promise<ReleaseOutcome>;
  /** The last holder has lost it. */
  lost(shared: SharedGrant, reason: LockLostReason): void;
}

/**
 * One registration as a reader, which any number of callers of this process hold at one time. Each has a lease with
 * its own limits; the grant is renewed as the most demanding of them asks, and released when the last has ended.
 */
export class SharedGrant implements LeaseSource, GrantHolder {
  readonly begunAt = performance.now();
  private readonly leases = new Set<Lease>();
  /** The shortest interval of renewals (ms) that the watchdog knows of. */
  private shortest = Infinity;

  constructor(
    readonly grant: Grant,
    private readonly host: SharedGrantHost,
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
    if (sooner || lease.outlastsGrant || !this.grant.schedule) watchdog.watch(this.grant);
    else if (lease.limited) watchdog.wakeNoLaterThan(performance.now() + lease.remaining());
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
    return this.used ? RELEASED : this.host.unused(this, atOnce);
  }

  leaseLost(lease: Lease, reason: LockLostReason): void {
    if (this.leases.delete(lease) && !this.used) this.host.lost(this, reason);
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

  get limited(): boolean {
    return this.some((lease) => lease.limited);
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
