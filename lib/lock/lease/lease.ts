import { AsyncLocalStorage } from 'node:async_hooks';
import type { Grant, GrantHolder } from './grant.js';
import { currentInstant, driftOf, elapsedSince, type Instant } from './lease-clock.js';
import { LockLostError, type LockLostReason } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { ReleaseOutcome } from './release-outcome.js';

/** A hold without limits of its own never uses its start, and so saves the reading of the clocks. */
const UNLIMITED: Instant = { monotonic: 0, wall: 0 };

/** A hold that rests on a lease. */
export interface LeaseHolder {
  /** All leases that the hold rests on. */
  readonly leases: readonly Lease[];
  leaseLost(): void;
  /** Raises the fencing token of the hold to at least `token`. */
  raiseToken(token: number): void;
  /** Runs `callback` in the async context of the holder, as the locks of this instance see it. */
  runAsHolder(callback: () => void): void;
}

/** Gets the error of a lost lease, once. */
export interface LossObserver {
  leaseLost(error: LockLostError): void;
}

/** What a lease was taken from, and returns to. */
export interface LeaseSource {
  /**
   * The last hold that rested on the lease has ended. With `atOnce`, the outcome follows the release at the backend,
   * unless the lock passes to another caller of this process.
   */
  takeBack(lease: Lease, atOnce: boolean): Promise<ReleaseOutcome>;
  /** The lease was lost. Its holder may run on for a while; the next caller need not wait for that. */
  leaseLost(lease: Lease, reason: LockLostReason): void;
}

/**
 * One holder's part of a grant: a fencing token, and the limits of the holder's own options. A lease ends once, by
 * release or by loss, for good.
 */
export class Lease implements GrantHolder {
  observer: LossObserver | undefined;
  private token: number;
  private released = false;
  private lostError: LockLostError | undefined;
  private controller: AbortController | undefined;
  /** The async context, of all storages, in which `signal` was first read. */
  private context: ReturnType<typeof AsyncLocalStorage.snapshot> | undefined;
  /** The hold that took the lease; a set once nested holds share it. */
  private holders: LeaseHolder | Set<LeaseHolder> | undefined;
  /** When the clocks of `maxHold`, and of `ttl` without renewal, start. */
  private startedAt: Instant;
  private ceiling: number;

  constructor(
    readonly grant: Grant,
    readonly source: LeaseSource,
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

  /** Raises the fencing token that later holds of this lease get to at least `token`. */
  raiseToken(token: number): void {
    this.token = Math.max(this.token, token);
  }

  /** Starts the limits of the hold: until now the lease only waited for the leases of other names. */
  begin(options: ResolvedLockOptions, startedAt: Instant): void {
    this.options = options;
    this.startedAt = startedAt;
    this.ceiling = ceilingOf(options);
  }

  get limited(): boolean {
    return this.ceiling !== Infinity || this.options.maxHold !== undefined;
  }

  /**
   * Milliseconds of trusted lease left. Reads the clock: at 0 the lease is lost. Only while a renewal is under way,
   * whose answer may have arrived while the event loop was blocked, the loss waits until that answer would have been
   * read, or until `lost` or `expire()` asks for it.
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

  /** Whether the deadline has passed while the answer to a renewal may still be unread. */
  get overdue(): boolean {
    return !this.released && this.remaining() === 0 && !this.lostError;
  }

  get outlastsGrant(): boolean {
    return this.ceiling !== Infinity && this.ceiling - elapsedSince(this.startedAt) > this.grant.remaining() + 1;
  }

  /** Ends a lease whose deadline has passed, without waiting for the answer to a renewal. */
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

  /** The same without reading the clock: misses a deadline that nothing has noticed yet. */
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

  /** The holder extended the lease to `ttl` ms by a request sent at `sentAt`. */
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
    this.source.leaseLost(this, reason);
  }

  /** Runs the listeners in the holder's async context, instead of that of the timer or answer which found the loss. */
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

  /** Adds a hold that rests on this lease: the first one, and each nested one. */
  share(holder: LeaseHolder): void {
    if (!this.holders) this.holders = holder;
    else if (this.holders instanceof Set) this.holders.add(holder);
    else this.holders = new Set([this.holders, holder]);
  }

  /** Removes a hold that has ended. Answers whether it was the last one, so that the lease is to be given back. */
  unshare(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set) return this.holders.delete(holder) && this.holders.size === 0;
    if (this.holders !== holder) return false;
    this.holders = undefined;
    return true;
  }

  /**
   * Removes a hold whose `Lock` was garbage-collected. Answers whether it was the last one: renewal of the lease then
   * stops.
   */
  orphan(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set && this.holders.size > 1) {
      this.holders.delete(holder);
      return false;
    }
    this.options = { ...this.options, renewal: undefined };
    return true;
  }

  /** All leases of the holds that rest on this one. */
  leasesOfHolders(): readonly Lease[] {
    return this.allHolders().flatMap(({ leases }) => leases);
  }

  /** Raises the fencing token of the holds that rest on this lease to at least `token`. */
  raiseHolders(token: number): void {
    for (const holder of this.allHolders()) holder.raiseToken(token);
  }

  private allHolders(): readonly LeaseHolder[] {
    const { holders } = this;
    if (!holders) return [];
    return holders instanceof Set ? [...holders] : [holders];
  }

  /** After this the lease is neither renewed nor lost. */
  markReleased(): void {
    if (this.lostError) return;
    this.released = true;
    this.context = undefined;
  }
}

function ceilingOf({ renewal, ttl }: ResolvedLockOptions): number {
  return renewal ? Infinity : ttl - driftOf(ttl);
}
