import type { TokenRange } from '../../contracts/lock-backend.js';
import type { Lease } from './lease.js';
import { driftOf, elapsedSince, type Instant } from './lease-clock.js';
import type { Place } from '../../timing/linked-list.js';
import type { LockLostReason } from '../../errors/lock-errors.js';
import type { Watch } from './watchdog.js';

/** Passes a grant from holder to holder. */
export interface GrantListener {
  wantedElsewhere(ticket: string): void;
}

/**
 * What the backend granted to this process under one ticket: until when it can be trusted, and the fencing tokens that
 * come with it. Holders of the process may rest on it one after another, each with a lease and a token of its own.
 *
 * The deadline is `remaining − drift` from before the request was sent, so that a slow answer shortens it.
 */
export class Grant {
  /** Where the watchdog has it, while it keeps it. */
  watch: Place<Watch> | undefined;
  /** Who holds it now. */
  holder: Lease | undefined;
  /** Told when the backend says that others wait for it. */
  listener: GrantListener | undefined;
  /** The longest lease (ms) that was asked for: the backend may have carried out a request that it did not answer. */
  longest: number;
  /** Until when (monotonic, ms) the names stay taken although their holder has ended; 0: not at all. */
  keptUntil = 0;
  private confirmedAt: Instant;
  private span: number;
  /** How many tokens the backend reserved the last time. */
  reserved: number;
  private next: number;
  private end: number;

  constructor(
    readonly names: readonly string[],
    readonly ticket: string,
    /** When the request was sent whose answer this deadline rests on. */
    private base: Instant,
    /** Milliseconds of lease from then. */
    private lease: number,
    tokens: TokenRange,
  ) {
    this.longest = lease;
    this.confirmedAt = base;
    this.span = lease - driftOf(lease);
    this.reserved = tokens.count;
    this.next = tokens.first;
    this.end = tokens.first + tokens.count;
  }

  /** Milliseconds of trusted lease left; 0 or less when it cannot be trusted any more. */
  remaining(): number {
    return this.span - elapsedSince(this.base);
  }

  /** Whether a renewal is under way: its answer may have arrived, and not been read yet. */
  get renewing(): boolean {
    return this.watch?.value.underWay === true;
  }

  /**
   * The names stay taken for `minHold` ms from now, whenever the holder ends. From now, and not from the send of the
   * request: the grant was made before now.
   */
  keepFor(minHold: number): void {
    this.keptUntil = Math.max(this.keptUntil, performance.now() + minHold);
  }

  /** Whether the names stay taken when their holder ends now. */
  get isKept(): boolean {
    return this.keptUntil !== 0 && this.keptUntil > performance.now();
  }

  /** Whether the backend keeps the names for `minHold` ms more though nobody renews them. */
  outlasts(minHold: number): boolean {
    return this.remaining() + driftOf(minHold) >= minHold;
  }

  /** When (monotonic, ms) `interval` of `ttl` has passed, or the same share of a shorter lease. */
  dueAfter(interval: number, ttl: number): number {
    return this.confirmedAt.monotonic + interval * Math.min(1, this.lease / ttl);
  }

  /** A request sent at `sentAt` was answered with `remaining` ms of lease. It never shortens the trust. */
  renewed(sentAt: Instant, remaining: number): void {
    this.confirmedAt = sentAt;
    this.lease = remaining;
    const span = remaining - driftOf(remaining);
    if (span - elapsedSince(sentAt) <= this.remaining()) return;
    this.base = sentAt;
    this.span = span;
  }

  /** Fencing tokens left for further holders. */
  get tokens(): number {
    return this.end - this.next;
  }

  takeToken(): number {
    return this.next++;
  }

  /** Tokens that the backend reserved after those that are left; the answer may be an old one. */
  addTokens({ first, count }: TokenRange): void {
    if (first < this.end) return;
    if (first > this.end) this.next = first;
    this.end = first + count;
    this.reserved = count;
  }

  /** Tokens below this are not to be used any more. */
  skipTokensBelow(least: number): void {
    this.next = Math.min(Math.max(this.next, least), Math.max(this.end, this.next));
  }

  /** It cannot be trusted any more, for good. */
  lose(reason: LockLostReason): void {
    this.holder?.lose(reason);
  }
}
