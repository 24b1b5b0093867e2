import type { Duration } from '../../options/duration.js';
import type { BareAcquisition } from './bare-acquisition.js';
import type { HoldScope } from './hold-scope.js';
import type { Lease, LeaseHolder } from '../lease/lease.js';
import type { Place } from '../../timing/linked-list.js';
import { onceRead } from '../../timing/once-read.js';
import type { Lock } from '../lock.js';
import { LockLostError } from '../../errors/lock-errors.js';
import { duration } from '../options/lock-options.js';
import type { NamedBackend } from '../backend/named-backend.js';
import { RELEASED, type ReleaseOutcome } from '../lease/releaser.js';

/** Whoever keeps account of the holds. */
export interface HoldObserver {
  lost(hold: HeldLock): void;
  ended(hold: HeldLock): void;
  /** Runs `callback` in the async context of the holder. */
  runAs(hold: HeldLock, callback: () => void): void;
}

/** Where the holder runs. It lets go of the hold when that ends, and the hold of it. */
export type HolderContext = HoldScope | BareAcquisition;

/** The lease that a hold rests on: its own, or that of the hold around it. */
export interface HeldPart {
  readonly backend: NamedBackend;
  readonly lease: Lease;
  /** Passes the turn within the outer hold's scope on; absent where the lease is this hold's own. */
  readonly endTurn?: () => void;
}

/**
 * One hold. It rests on one lease, or on several where some of its names were held already around it. A lease is given
 * back with the last hold that rests on it.
 */
export class HeldLock implements Lock, LeaseHolder {
  readonly owner: string;
  /** Among the holds of the instance. */
  place: Place<HeldLock> | undefined;
  context: HolderContext | undefined;
  private token: number;
  private releasing: Promise<unknown> | undefined;
  /** Told by the backend when it was given back. */
  private taken: LockLostError | undefined;
  private ended = false;
  private joinedSignal: AbortSignal | undefined;

  constructor(
    readonly keys: readonly string[],
    private readonly parts: readonly HeldPart[],
    private readonly observer: HoldObserver,
  ) {
    const [first] = parts as readonly [HeldPart, ...HeldPart[]];
    const own = parts.find((part) => !part.endTurn) ?? first;
    this.owner = own.lease.grant.ticket;
    this.token =
      parts.length === 1 ? first.lease.fencingToken : Math.max(...parts.map((part) => part.lease.fencingToken));
    for (const part of parts) part.lease.share(this);
  }

  get fencingToken(): number {
    return this.token;
  }

  /** A hold inside of this one, of further names, has shown a larger token to what this one protects. */
  raiseToken(token: number): void {
    this.token = Math.max(this.token, token);
  }

  /** What it rests on. */
  get leases(): readonly Lease[] {
    return this.parts.map(({ lease }) => lease);
  }

  get signal(): AbortSignal {
    const signals = this.parts.map((part) => part.lease.signal);
    if (signals.length === 1) return signals[0] as AbortSignal;
    return (this.joinedSignal ??= AbortSignal.any(signals));
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  remaining(): number {
    if (this.ended) return 0;
    const [first, ...others] = this.parts;
    const remaining = first?.lease.remaining() ?? 0;
    return others.reduce((least, { lease }) => Math.min(least, lease.remaining()), remaining);
  }

  /** Why it was lost; `undefined` while it is held, and after it was released in time. */
  get lost(): LockLostError | undefined {
    for (const { lease } of this.parts) if (lease.lost) return lease.lost;
    return this.taken;
  }

  /** The same, as far as is known without a look at the clock. */
  get isLost(): boolean {
    return this.taken !== undefined || this.parts.some(({ lease }) => lease.isLost);
  }

  /** As `lost`, once what has arrived was read: a renewal may have been answered while the event loop stood still. */
  async lostOnceRead(): Promise<LockLostError | undefined> {
    if (this.parts.some(({ lease }) => lease.overdue)) await new Promise<void>(onceRead);
    return this.lost;
  }

  get isReleased(): boolean {
    return this.ended;
  }

  /** The part that keeps this name. */
  partOf(backend: NamedBackend, name: string): HeldPart | undefined {
    if (!this.keys.includes(name)) return undefined;
    return this.parts.find((part) => part.backend === backend && part.lease.grant.names.includes(name));
  }

  assertHeld(): void {
    if (this.held) return;
    throw this.lost ?? this.lostAs('taken');
  }

  async extend(ttl?: Duration): Promise<void> {
    const given = ttl === undefined ? undefined : duration('ttl', ttl, 1);
    this.assertHeld();
    await Promise.all(this.parts.map(({ backend, lease }) => backend.extend(lease, given)));
    this.assertHeld();
  }

  async release(): Promise<void> {
    this.releasing ??= this.releaseOrThrow();
    await this.releasing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.releasing) await this.release();
  }

  /** Ends the hold without complaint. Answers nothing where there is nothing to wait for. */
  finish(): Promise<ReleaseOutcome> | undefined {
    if (this.releasing) return undefined;
    const outcome = this.end(false);
    this.releasing = outcome;
    return outcome === RELEASED ? undefined : outcome;
  }

  /**
   * Whether the backend found that the lock had been taken away before it was given back. An answer that came after the
   * lease had run out says nothing: the lock was then free, or somebody else's, by right.
   */
  wasTakenBefore(outcome: ReleaseOutcome): boolean {
    if (outcome !== 'gone' && outcome !== 'taken') return false;
    if (this.parts.some(({ lease }) => lease.grant.remaining() <= 0)) return false;
    this.taken ??= this.lostAs('taken');
    return true;
  }

  /** The backend was told to free what this ticket owned. */
  revoke(backend: NamedBackend, ticket: string): void {
    for (const part of this.parts) {
      if (part.backend === backend && part.lease.grant.ticket === ticket) part.lease.lose('taken');
    }
  }

  /** The application ends: the lock is lost to its holder and given back for others. */
  takeAway(): void {
    for (const { backend, lease } of this.parts) {
      lease.lose('shutdown');
      backend.releaser.abandon(lease.grant, lease.grant.longest);
    }
  }

  leaseLost(): void {
    this.observer.lost(this);
  }

  runAsHolder(callback: () => void): void {
    this.observer.runAs(this, callback);
  }

  /** Nobody can release it any more: it lasts for as long as the others that rest on its leases, or the leases last. */
  orphan(): void {
    for (const { backend, lease } of this.parts) if (lease.orphan(this)) backend.watchdog.watch(lease.grant);
  }

  private async releaseOrThrow(): Promise<void> {
    const lost = this.held ? undefined : await this.lostOnceRead();
    const outcome = await this.end(true);
    if (lost) throw lost;
    if (this.wasTakenBefore(outcome)) throw this.taken;
  }

  private end(atOnce: boolean): Promise<ReleaseOutcome> {
    this.ended = true;
    const outcomes: Promise<ReleaseOutcome>[] = [];
    for (const { lease } of this.parts) {
      if (lease.unshare(this)) outcomes.push(lease.keeper.takeBack(lease, atOnce));
    }
    for (const { endTurn } of this.parts) endTurn?.();
    this.context?.close();
    this.context = undefined;
    this.observer.ended(this);
    const [only = RELEASED] = outcomes;
    return outcomes.length <= 1 ? only : worstOf(outcomes);
  }

  private lostAs(reason: 'taken'): LockLostError {
    return new LockLostError(this.keys, { reason, fencingToken: this.fencingToken, owner: this.owner });
  }
}

/** The backend's word that a lease was not ours any more outweighs all others. */
async function worstOf(outcomes: readonly Promise<ReleaseOutcome>[]): Promise<ReleaseOutcome> {
  const all = await Promise.all(outcomes);
  return all.find((outcome) => outcome === 'gone' || outcome === 'taken') ?? 'released';
}
