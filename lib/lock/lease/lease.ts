import { AsyncLocalStorage } from 'node:async_hooks';
import type { Grant } from './grant.js';
import { currentInstant, driftOf, elapsedSince, type Instant } from './lease-clock.js';
import { LockLostError, type LockLostReason } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { ReleaseOutcome } from './releaser.js';

/** Never looked at: a hold without limits of its own spares the look at the clocks. */
const UNLIMITED: Instant = { monotonic: 0, wall: 0 };

/** A hold that rests on a lease. */
export interface LeaseHolder {
  /** All that it rests on. */
  readonly leases: readonly Lease[];
  leaseLost(): void;
  /** Shows a token of at least this from now on. */
  raiseToken(token: number): void;
  /** Runs `callback` in the async context of the holder, as the locks of this instance see it. */
  runAsHolder(callback: () => void): void;
}

/** Whoever is to hear of a loss. */
export interface LossObserver {
  leaseLost(error: LockLostError): void;
}

/** Where a lease comes from, and goes back to. */
export interface LeaseKeeper {
  /**
   * The last hold that rested on it has ended. With `atOnce` the lock is given back before the outcome is told, unless
   * a caller of this process has it next.
   */
  takeBack(lease: Lease, atOnce: boolean): Promise<ReleaseOutcome>;
  /** It was lost: its holder may go on for a while, others need not wait for that. */
  leaseLost(lease: Lease, reason: LockLostReason): void;
}

/**
 * One holder's share of a grant: its own fencing token, and the limits of its own options. It ends once, by release or
 * by loss; neither can be undone.
 */
export class Lease {
  /** Told when the lease is lost, once. */
  observer: LossObserver | undefined;
  private token: number;
  private released = false;
  private lostError: LockLostError | undefined;
  private controller: AbortController | undefined;
  /** The async context, of all storages, of whoever asked for the signal first. */
  private context: ReturnType<typeof AsyncLocalStorage.snapshot> | undefined;
  /** The one, or the several with those nested inside. */
  private holders: LeaseHolder | Set<LeaseHolder> | undefined;
  /** When the clocks of `maxHold`, and of `ttl` without renewal, start. */
  private startedAt: Instant;
  private ceiling: number;

  constructor(
    readonly grant: Grant,
    readonly keeper: LeaseKeeper,
    public options: ResolvedLockOptions,
    startedAt?: Instant,
  ) {
    this.token = grant.takeToken();
    this.ceiling = ceilingOf(options);
    this.startedAt = startedAt ?? (this.limited ? currentInstant() : UNLIMITED);
    grant.holder = this;
    if (options.ttl > grant.longest) grant.longest = options.ttl;
  }

  get fencingToken(): number {
    return this.token;
  }

  /** Holds that come to rest on it show a token of at least this from now on. */
  raiseToken(token: number): void {
    this.token = Math.max(this.token, token);
  }

  /** Until now it was only kept: from here on the limits of the hold itself count. */
  begin(options: ResolvedLockOptions, startedAt: Instant): void {
    this.options = options;
    this.startedAt = startedAt;
    this.ceiling = ceilingOf(options);
  }

  /** Whether it may end before the grant does. */
  get limited(): boolean {
    return this.ceiling !== Infinity || this.options.maxHold !== undefined;
  }

  /**
   * Milliseconds of trusted lease left. Reads the clock: at 0 the lease is lost, unless a renewal is under way, whose
   * answer may have arrived while the event loop stood still. Then it is lost when that was looked at, or somebody asks
   * for the loss.
   */
  remaining(): number {
    if (this.released || this.lostError) return 0;
    const { maxHold } = this.options;
    const ofGrant = this.grant.remaining();
    let remaining = ofGrant;
    if (this.ceiling !== Infinity) remaining = Math.min(remaining, this.ceiling - elapsedSince(this.startedAt));
    if (maxHold !== undefined) {
      const ofHold = maxHold - elapsedSince(this.startedAt);
      if (ofHold <= 0) {
        this.lose('maxHold');
        return 0;
      }
      remaining = Math.min(remaining, ofHold);
    }
    if (remaining > 0) return remaining;
    if (ofGrant > 0 || !this.grant.renewing) this.lose('expired');
    return 0;
  }

  /** Whether its time is over, and it is not settled yet whether it was renewed in time. */
  get overdue(): boolean {
    return !this.released && this.remaining() === 0 && !this.lostError;
  }

  /**
   * Whether the grant must be renewed once, for a holder that does not renew it, to last as long as it was promised.
   */
  get outlastsGrant(): boolean {
    return this.ceiling !== Infinity && this.ceiling - elapsedSince(this.startedAt) > this.grant.remaining() + 1;
  }

  /** No answer to a renewal is waited for any more. */
  expire(): void {
    if (this.overdue) this.lose('expired');
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  /** Why the lease was lost, or `undefined` while it is held or after it was released. Reads the clock. */
  get lost(): LockLostError | undefined {
    this.expire();
    return this.lostError;
  }

  /** The same, as far as is known without a look at the clock. */
  get isLost(): boolean {
    return this.lostError !== undefined;
  }

  get signal(): AbortSignal {
    const { lost } = this;
    if (!this.controller) {
      this.controller = new AbortController();
      if (lost) this.controller.abort(lost);
      else if (!this.released) this.context = AsyncLocalStorage.snapshot();
    }
    return this.controller.signal;
  }

  /** Its holder asked for `ttl` ms from now on. */
  extended(sentAt: Instant, ttl: number): void {
    if (this.ceiling === Infinity) return;
    const since = elapsedSince(this.startedAt) - elapsedSince(sentAt);
    this.ceiling = Math.max(this.ceiling, since + ttl - driftOf(ttl));
  }

  lose(reason: LockLostReason): void {
    if (this.released || this.lostError) return;
    const { names, ticket } = this.grant;
    this.lostError = new LockLostError(names, { reason, fencingToken: this.fencingToken, owner: ticket });
    this.abort(this.lostError);
    this.observer?.leaseLost(this.lostError);
    if (this.holders instanceof Set) for (const holder of this.holders) holder.leaseLost();
    else this.holders?.leaseLost();
    this.keeper.leaseLost(this, reason);
  }

  /** Listeners run where the holder runs: whoever set the timer that ends the lease has nothing to do with them. */
  private abort(error: LockLostError): void {
    const { controller, context } = this;
    this.context = undefined;
    if (!controller) return;
    const abort = () => controller.abort(error);
    const [holder] = this.allHolders();
    const run = () => (holder ? holder.runAsHolder(abort) : abort());
    if (context) context(run);
    else run();
  }

  /** One more hold rests on this lease: the first one and each nested one. */
  share(holder: LeaseHolder): void {
    if (!this.holders) this.holders = holder;
    else if (this.holders instanceof Set) this.holders.add(holder);
    else this.holders = new Set([this.holders, holder]);
  }

  /** A hold ended. Answers whether it was the last one: the lease is then to be given back. */
  unshare(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set) return this.holders.delete(holder) && this.holders.size === 0;
    if (this.holders !== holder) return false;
    this.holders = undefined;
    return true;
  }

  /**
   * A hold that nobody can end any more. Answers whether it was the last one: the lease is then not renewed any more.
   */
  orphan(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set && this.holders.size > 1) {
      this.holders.delete(holder);
      return false;
    }
    this.options = { ...this.options, renewal: undefined };
    return true;
  }

  /** What the holds that rest on it rest on. */
  leasesOfHolders(): readonly Lease[] {
    return this.allHolders().flatMap(({ leases }) => leases);
  }

  /** A hold that rests on it, and on others, shows this token to what it protects. */
  raiseHolders(token: number): void {
    for (const holder of this.allHolders()) holder.raiseToken(token);
  }

  private allHolders(): readonly LeaseHolder[] {
    const { holders } = this;
    if (!holders) return [];
    return holders instanceof Set ? [...holders] : [holders];
  }

  /** From here on it is neither renewed nor lost. */
  markReleased(): void {
    if (this.lostError) return;
    this.released = true;
    this.context = undefined;
  }
}

function ceilingOf({ renewal, ttl }: ResolvedLockOptions): number {
  return renewal ? Infinity : ttl - driftOf(ttl);
}
