import { AsyncResource } from 'node:async_hooks';
import { LockLostError, type LockLostReason } from '../../errors/lock-errors.js';
import type { LockCall } from '../../events/lock-channels.js';
import { currentInstant, driftOf, elapsedSince, type Instant } from '../../timing/clock.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';
import type { Grant, GrantHolder } from './grant.js';
import type { LastRequest } from './store.js';

/** When a hold ends at the latest, although its grant may go on: `ttl` without renewal, and `maxHold`. */
interface Limits {
  /** When their clocks start. */
  readonly startedAt: Instant;
  /** Milliseconds; `Infinity` where the hold is renewed. */
  ceiling: number;
}

/** A hold as its leases see it. */
export interface LeaseHolder {
  /** All its leases. */
  readonly leases: readonly Lease[];
  /** The call in events. */
  readonly call: LockCall;
  readonly mode: LockMode;
  /** The options of its own call, which count from when it stands alone. */
  readonly options: ResolvedLockOptions;
  /** When it began to read; absent for one that writes. */
  readonly startedAt: Instant | undefined;
  /** `first`: it is the first hold of the lease that learns of it. */
  leaseLost(error: LockLostError, first: boolean): void;
  /** Raises the fencing token of the hold to at least `token`. */
  raiseToken(token: number): void;
  /** Runs `callback` in the async context of the holder, as far as this library's storages go. */
  runAsHolder(callback: () => void): void;
}

/** Where a lease comes from, and where it returns. */
export interface LeaseSource {
  /**
   * Called when the last hold of the lease has ended. With `atOnce`, settles with the release at the backend, unless
   * the lock passes to another caller of this process. `trusted`: it was seen to be held a moment ago.
   */
  takeBack(lease: Lease, atOnce: boolean, trusted?: boolean): Promise<ReleaseOutcome>;
  /**
   * As `takeBack`, by a request of the holder that frees the name in the same step; `unconfirmed` changes nothing.
   * `undefined` where the name is not to be freed now.
   */
  endBy?(lease: Lease, by: LastRequest): Promise<ReleaseOutcome> | undefined;
  /** Called when another source takes over the lease: only readers hold it from now on. */
  leaveToReaders?(lease: Lease): void;
  /** Called when the lease was lost. Its holder may go on for a while; the next caller does not wait for that. */
  leaseLost(lease: Lease, reason: LockLostReason): void;
}

/**
 * One holder's part of a grant: a fencing token, and the limits of the holder's options. A lease ends once, by release
 * or by loss.
 */
export class Lease implements GrantHolder {
  /** The call whose hold ended last, if somebody listens. */
  declare endedBy: LockCall | undefined;
  /** Why it was lost; `true` once it was released. */
  private over: LockLostError | true | undefined = undefined;
  declare private lossSignal: LossSignal | undefined;
  /** The hold that took the lease; a set once nested holds share it. */
  private holders: LeaseHolder | Set<LeaseHolder> | undefined = undefined;
  limits: Limits | undefined;

  constructor(
    readonly grant: Grant,
    public source: LeaseSource,
    public options: ResolvedLockOptions,
    startedAt?: Instant,
    public fencingToken = grant.takeToken(),
  ) {
    const { ceiling } = options;
    this.limits = options.limited ? { startedAt: startedAt ?? currentInstant(), ceiling } : undefined;
    grant.holder = this;
    if (options.ttl > grant.longest) grant.longest = options.ttl;
  }

  get call(): LockCall | undefined {
    return this.allHolders()[0]?.call;
  }

  /** Raises the fencing token that later holds of this lease get to at least `token`. */
  raiseToken(token: number): void {
    this.fencingToken = Math.max(this.fencingToken, token);
  }

  /** Starts the limits of a hold; before, others counted: while it waited for the leases of other names, none. */
  begin(options: ResolvedLockOptions, startedAt: Instant): void {
    this.options = options;
    this.limits = options.limited ? { startedAt, ceiling: options.ceiling } : undefined;
  }

  /**
   * Milliseconds of trusted lease left. Reads the clock: at 0 the lease is lost. Only while a renewal is under way,
   * whose answer may have arrived while the event loop was blocked, the loss waits until that answer would have been
   * read, or until `lost` or `expire()` is called.
   */
  remaining(): number {
    if (this.over) return 0;
    const { limits } = this;
    const ofGrant = this.grant.remaining();
    let remaining = ofGrant;
    if (limits) {
      const { maxHold = Infinity } = this.options;
      const elapsed = elapsedSince(limits.startedAt);
      if (maxHold <= elapsed) {
        this.lose('maxHold');
        return 0;
      }
      remaining = Math.min(remaining, limits.ceiling - elapsed, maxHold - elapsed);
    }
    if (remaining > 0) return remaining;
    if (ofGrant > 0 || !this.grant.renewing) this.lose('expired');
    return 0;
  }

  /** Whether the deadline has passed while the answer to a renewal may still be unread. */
  get overdue(): boolean {
    return !this.over && this.remaining() === 0 && !this.over;
  }

  get outlastsGrant(): boolean {
    const { limits } = this;
    if (!limits || limits.ceiling === Infinity) return false;
    return limits.ceiling - elapsedSince(limits.startedAt) > this.grant.remaining() + 1;
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

  /** The same without reading the clock: does not notice a deadline that has just passed. */
  get isLost(): boolean {
    return this.lostError !== undefined;
  }

  /** Whether it was lost or released, without reading the clock. */
  get isOver(): boolean {
    return this.over !== undefined;
  }

  private get lostError(): LockLostError | undefined {
    return this.over === true ? undefined : this.over;
  }

  get signal(): AbortSignal {
    const { lost } = this;
    if (!this.lossSignal) {
      this.lossSignal = new LossSignal();
      if (lost) this.abort(lost);
      else if (this.over) this.lossSignal.settle();
    }
    return this.lossSignal.signal;
  }

  /** Called when the holder extended the lease to `ttl` ms by a request sent at `sentAt`. */
  extended(sentAt: Instant, ttl: number): void {
    const { limits } = this;
    if (!limits) return;
    const since = elapsedSince(limits.startedAt) - elapsedSince(sentAt);
    limits.ceiling = Math.max(limits.ceiling, since + ttl - driftOf(ttl));
  }

  lose(reason: LockLostReason): void {
    if (this.over) return;
    const { names, ticket } = this.grant;
    const error = (this.over = new LockLostError(names, { reason, fencingToken: this.fencingToken, owner: ticket }));
    this.abort(error);
    for (const [index, holder] of this.allHolders().entries()) holder.leaseLost(error, index === 0);
    this.source.leaseLost(this, reason);
  }

  private abort(error: LockLostError): void {
    const [holder] = this.allHolders();
    this.lossSignal?.abort(error, (abort) => (holder ? holder.runAsHolder(abort) : abort()));
  }

  /** Adds a hold to this lease: the first one, or a nested one. */
  share(holder: LeaseHolder): void {
    if (!this.holders) this.holders = holder;
    else if (this.holders instanceof Set) this.holders.add(holder);
    else this.holders = new Set([this.holders, holder]);
  }

  /** Removes a hold that has ended. Returns whether it was the last one, so that the lease must be released. */
  unshare(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set) return this.holders.delete(holder) && this.holders.size === 0;
    if (this.holders !== holder) return false;
    this.holders = undefined;
    return true;
  }

  /** Whether no other hold shares it. */
  isOnlyOf(holder: LeaseHolder): boolean {
    const all = this.allHolders();
    return all.length === 1 && all[0] === holder;
  }

  /** Whether its owner may become a reader: it was taken to write, and all holds that are left of it read. */
  get leftToReaders(): boolean {
    if (this.options.mode === 'read' || this.lostError || this.grant.inMinHold) return false;
    return this.allHolders().every(({ mode }) => mode === 'read');
  }

  /**
   * Leaves the lease to the holds that read, under a source of its own. From now on their own options count, from when
   * each of them began, and no longer those of the hold that wrote; the most demanding of each.
   */
  becomeShared(source: LeaseSource): void {
    this.source.leaveToReaders?.(this);
    this.source = source;
    let [ttl, ceiling] = [0, 0];
    let maxHold: number | undefined = 0;
    let renewal: ResolvedLockOptions['renewal'];
    for (const { options, startedAt } of this.allHolders()) {
      const since = startedAt ? elapsedSince(startedAt) : 0;
      ttl = Math.max(ttl, options.ttl);
      if (options.renewal && options.renewal.interval < (renewal?.interval ?? Infinity)) renewal = options.renewal;
      ceiling = Math.max(ceiling, options.ceiling - since);
      if (maxHold !== undefined) {
        maxHold = options.maxHold === undefined ? undefined : Math.max(maxHold, options.maxHold - since);
      }
    }
    const limited = ceiling !== Infinity || maxHold !== undefined;
    const own = { mode: 'read', ttl, lease: ttl, ceiling, limited, renewal, maxHold, minHold: 0 } as const;
    this.begin({ ...this.options, ...own }, currentInstant());
    this.grant.endAfter(ttl);
  }

  /** Removes a hold whose `Lock` was garbage-collected. Returns whether it was the last one; renewal then stops. */
  orphan(holder: LeaseHolder): boolean {
    if (this.holders instanceof Set && this.holders.size > 1) {
      this.holders.delete(holder);
      return false;
    }
    this.options = { ...this.options, renewal: undefined };
    return true;
  }

  /** All leases of the holds that share this one. */
  leasesOfHolders(): readonly Lease[] {
    return this.allHolders().flatMap(({ leases }) => leases);
  }

  /** Raises the fencing token of the holds that share this lease to at least `token`. */
  raiseHolders(token: number): void {
    for (const holder of this.allHolders()) holder.raiseToken(token);
  }

  private allHolders(): readonly LeaseHolder[] {
    const { holders } = this;
    if (!holders) return [];
    return holders instanceof Set ? [...holders] : [holders];
  }

  /** Ends the lease: it is neither renewed nor lost from now on. */
  markReleased(): void {
    if (this.over) return;
    this.over = true;
    this.lossSignal?.settle();
  }
}

/**
 * `unconfirmed`: the backend did not answer the first request; it is repeated in the background until the lease ends.
 */
export type ReleaseOutcome = 'released' | 'gone' | 'taken' | 'unconfirmed';

/** The outcome of a release that needed no request. */
export const RELEASED = Promise.resolve<ReleaseOutcome>('released');
/** The outcome for a lease that has ended before. */
export const GONE = Promise.resolve<ReleaseOutcome>('gone');

/** The outcome of both: one lease that was gone or taken decides, else one whose release nobody has confirmed. */
export async function worseOf(one: Promise<ReleaseOutcome>, other: Promise<ReleaseOutcome>): Promise<ReleaseOutcome> {
  const both = await Promise.all([one, other]);
  const lost = both.find((outcome) => outcome === 'gone' || outcome === 'taken');
  return lost ?? (both.includes('unconfirmed') ? 'unconfirmed' : 'released');
}

/** The `AbortSignal` of a hold. Made when the holder first reads it, in whose async context its listeners run. */
export class LossSignal {
  private readonly controller = new AbortController();
  /** The async context (of all storages) in which it was made. */
  private context: AsyncResource | undefined = new AsyncResource('LossSignal');

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Aborts it in the holder's async context rather than in that of the timer or answer that found the loss. */
  abort(error: Error, runAsHolder: (callback: () => void) => void = (callback) => callback()): void {
    const { context } = this;
    this.context = undefined;
    const abort = () => runAsHolder(() => this.controller.abort(error));
    if (context) context.runInAsyncScope(abort);
    else abort();
  }

  /** It is never aborted from now on. */
  settle(): void {
    this.context = undefined;
  }
}
