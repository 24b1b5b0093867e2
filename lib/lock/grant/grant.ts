import type { LockBackend } from '../../contracts/lock-backend.js';
import type { TokenRange } from '../../contracts/lock-requests.js';
import type { LockLostError, LockLostReason } from '../../errors/lock-errors.js';
import type { LockCall } from '../../events/lock-channels.js';
import { currentInstant, driftOf, elapsedBetween, elapsedSince, type Instant } from '../../timing/clock.js';
import type { Place } from '../../timing/brief-collections.js';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';

/** The holder of a grant, as the grant and the watchdog see it. */
export interface GrantHolder {
  readonly options: Pick<ResolvedLockOptions, 'ttl' | 'renewal'>;
  /** Whether its lease may end before the grant does. */
  readonly limited: boolean;
  /** Whether a grant for a holder without renewal must be renewed once, to last as long as the holder's `ttl`. */
  readonly outlastsGrant: boolean;
  readonly held: boolean;
  readonly fencingToken: number;
  /** The call in events; `undefined` while it waits for leases of other names. */
  readonly call: LockCall | undefined;
  /** Why it was lost; reads the clock. */
  readonly lost: LockLostError | undefined;
  /** Milliseconds of trusted lease left; reads the clock. */
  remaining(): number;
  lose(reason: LockLostReason): void;
}

/** Passes a grant from holder to holder. */
export interface GrantListener {
  /** The backend reported that another process waits for the name. */
  wantedElsewhere(ticket: string): void;
}

/** The watchdog's schedule for one grant. */
interface RenewalSchedule {
  /** Position in the watchdog's list. */
  readonly place: Place<Grant>;
  /** Since when (monotonic, ms) it is watched. */
  readonly since: number;
  /** When the next renewal is due, on the monotonic clock (ms); `Infinity` without renewal. */
  dueAt: number;
  /** While a renewal is under way, no other one is sent. */
  underWay: boolean;
  /** Failed renewals since the last confirmed one. */
  failures: number;
}

/**
 * What the backend granted to this process under one ticket: a deadline and a range of fencing tokens. Several callers
 * of the process may hold it, one after another, each with a `Lease` and a fencing token of its own.
 *
 * The deadline is `remaining − drift` from before the request was sent, so that a slow answer shortens it.
 */
export class Grant {
  /** Present while the watchdog watches this grant. */
  schedule: RenewalSchedule | undefined;
  /** Present while a caller holds this grant. */
  holder: GrantHolder | undefined;
  listener: GrantListener | undefined;
  /** Called once when the next renewal was confirmed: several readers may wait for it. */
  onRenewed: Set<() => void> | undefined;
  /** How much lease (ms) the last request gave that was for more: a store may grant less than the `ttl`. */
  most = Infinity;
  /** The longest `ttl` (ms) requested so far: the backend may have carried out a request without answering. */
  longest: number;
  /** Whether a request of its holder is under way that frees the names: its answer says whether they were its own. */
  ending = false;
  /** Until when (monotonic, ms) the names stay taken by `minHold` after their holder has ended; 0 without `minHold`. */
  minHoldUntil = 0;
  /** When (monotonic, ms) the request was sent that granted it, or that was last answered before. */
  readonly since: number;
  private confirmedAt: Instant;
  /** The lease (ms) from `base` that set the current deadline, and what is left of it after the drift of the clocks. */
  private trusted: number;
  private span: number;
  /** How many tokens the backend reserved with its last answer. */
  reserved: number;
  /** How many of the fencing tokens are left for further holders. */
  tokens: number;
  /** The next of them. */
  private next: number;

  constructor(
    readonly names: readonly string[],
    readonly ticket: string,
    /** When the request was sent whose answer set the current deadline. */
    private base: Instant,
    /** Milliseconds of lease that the backend granted last. */
    public granted: number,
    tokens: TokenRange,
    /** Milliseconds that were asked for. */
    asked = granted,
  ) {
    this.longest = asked;
    this.since = base.monotonic;
    this.trusted = granted;
    this.confirmedAt = base;
    this.span = granted - driftOf(granted);
    this.reserved = this.tokens = tokens.count;
    this.next = tokens.first;
  }

  /** Milliseconds until the deadline; 0 or less after it. */
  remaining(): number {
    return this.span - elapsedSince(this.base);
  }

  /** Whether a renewal is under way. After a standstill its answer may have arrived without having been read. */
  get renewing(): boolean {
    return this.schedule?.underWay === true;
  }

  /**
   * Starts the minimum hold: the names stay taken for `minHold` ms from now, whenever the holder ends. Counting from
   * now rather than from the request is safe, because the backend granted the names before now.
   */
  startMinHold(minHold: number): void {
    this.minHoldUntil = Math.max(this.minHoldUntil, performance.now() + minHold);
  }

  /** Whether the names would stay taken if their holder ended now. */
  get inMinHold(): boolean {
    return this.minHoldUntil !== 0 && this.minHoldUntil > performance.now();
  }

  /** Whether the lease at the backend lasts for another `ms` without a renewal. */
  lastsFor(ms: number): boolean {
    return this.remaining() + driftOf(ms) >= ms;
  }

  /**
   * When (monotonic, ms) `interval` of `ttl` has passed; for a shorter lease, such as a claim, the same share of it.
   */
  dueAfter(interval: number, ttl: number): number {
    const share = Math.min(1, this.granted / ttl);
    return this.confirmedAt.monotonic + Math.max(interval * share, Math.min(interval, SHORTEST_PAUSE));
  }

  /**
   * Called when the backend answered `answered` ms to a request for `asked` ms that was sent at `sentAt`. No more
   * counts than was asked for, then or earlier; a check asks for no longer lease. The deadline never moves back.
   */
  renewed(sentAt: Instant, answered: number, asked: number): void {
    const left = this.trusted - elapsedBetween(this.base, sentAt);
    const remaining = trustedLease(answered, Math.max(asked, left));
    this.confirmedAt = sentAt;
    this.granted = remaining;
    this.most = remaining < asked ? remaining : Infinity;
    const span = remaining - driftOf(remaining);
    if (span - elapsedSince(sentAt) > this.remaining()) {
      this.base = sentAt;
      this.trusted = remaining;
      this.span = span;
    }
    for (const renewed of this.onRenewed ?? []) renewed();
  }

  /** From now on the lease ends `ttl` ms after this moment, as the backend learns by a request. */
  endAfter(ttl: number): void {
    const span = ttl - driftOf(ttl);
    if (span >= this.remaining()) return;
    this.base = this.confirmedAt = currentInstant();
    this.granted = this.trusted = ttl;
    this.span = span;
  }

  takeToken(): number {
    this.tokens -= 1;
    return this.next++;
  }

  /** The token of all holders of a grant that several hold at one time. */
  get sharedToken(): number {
    return this.next;
  }

  /** Adds tokens that the backend reserved; ignores a late answer, whose tokens are below those present. */
  addTokens({ first, count }: TokenRange): void {
    const end = this.next + this.tokens;
    if (first < end) return;
    if (first > end) [this.next, this.tokens] = [first, 0];
    this.tokens += count;
    this.reserved = count;
  }

  /** Discards the tokens below `least`. */
  skipTokensBelow(least: number): void {
    const skipped = Math.min(Math.max(0, least - this.next), Math.max(0, this.tokens));
    this.next += skipped;
    this.tokens -= skipped;
  }

  /** Marks the lock as lost to its holder, for good. */
  lose(reason: LockLostReason): void {
    this.holder?.lose(reason);
  }
}

/** What hands a grant on that lingers. */
interface Lingerer {
  handBack(): void;
  lost(grant: Grant, reason: LockLostReason): void;
}

/**
 * Stands for the next holder of a grant that no caller has: the watchdog looks whether the process still owns the name,
 * as for any holder, and never renews its lease. Handed back after `lasts` ms.
 */
export class Lingering implements GrantHolder, Expiring {
  readonly options: GrantHolder['options'];
  readonly limited = false;
  readonly outlastsGrant = false;
  readonly fencingToken = 0;
  readonly call = undefined;
  readonly lost = undefined;
  private readonly timeout: Timeout;

  constructor(
    private readonly grant: Grant,
    private readonly lingerer: Lingerer,
    { ttl, lasts }: { readonly ttl: number; readonly lasts: number },
    timeouts: Timeouts,
  ) {
    this.options = { ttl, renewal: undefined };
    this.timeout = timeouts.start(lasts, this);
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  remaining(): number {
    return Math.max(0, this.grant.remaining());
  }

  expire(): void {
    this.lingerer.handBack();
  }

  lose(reason: LockLostReason): void {
    this.lingerer.lost(this.grant, reason);
  }

  end(): void {
    this.timeout.leave();
  }
}

/** The shortest pause (ms) between two renewals: a store may answer that nothing is left. */
const SHORTEST_PAUSE = 10;

/**
 * How much (ms) of the lease that a store says it granted is believed: never more than was asked for. A clock of the
 * store that stepped back, or an expiry that somebody else set, would keep a lock held here long after it has ended
 * there.
 */
export function trustedLease(answered: number, asked: number): number {
  return answered > 0 ? Math.min(answered, asked) : 0;
}

/** Whether a store says that more of a lease is left than was asked for, by more than clocks differ. */
export function exceedsLease(remaining: number, asked: number): boolean {
  return remaining > asked + driftOf(asked);
}

/** How many names a floor remembers one by one, at least: those that were granted last. At most twice as many. */
const MOST_NAMES = 5_000;

/**
 * The largest fencing token of each name that this process has seen. A store that lost its data may count from below:
 * such tokens have no holder. Names that no longer fit raise the floor of all that are not remembered, so that memory
 * is bounded and no token falls.
 */
export class TokenFloor {
  private recent = new Map<string, number>();
  /** Those before. */
  private earlier = new Map<string, number>();
  private forgotten = 0;

  of(name: string): number {
    return this.recent.get(name) ?? this.earlier.get(name) ?? this.forgotten;
  }

  /**
   * Those of the tokens that are above all seen of these names, or for readers not below them; notes them. None of what
   * are no whole numbers below 2^53.
   */
  admit(names: readonly string[], { first, count }: TokenRange, mode: LockMode): TokenRange {
    const reads = mode === 'read';
    // From 2^53 on, the number after a token is not above it.
    const rise = Number.isSafeInteger(first) && Number.isSafeInteger(first + count);
    let least = rise ? first : 0;
    for (const name of names) least = Math.max(least, this.of(name) + (reads ? 0 : 1));
    const left = rise ? first + count - least : 0;
    if (left <= 0) return { first: least, count: 0 };
    const last = reads ? least : least + left - 1;
    for (const name of names) this.note(name, last);
    return { first: least, count: left };
  }

  /** A token of the name was handed on; another may have been issued after it, and have arrived before. */
  saw(name: string, token: number): void {
    if (token > this.of(name)) this.note(name, token);
  }

  private note(name: string, token: number): void {
    this.recent.set(name, token);
    if (this.recent.size <= MOST_NAMES) return;
    for (const [each, last] of this.earlier) {
      if (!this.recent.has(each)) this.forgotten = Math.max(this.forgotten, last);
    }
    this.earlier = this.recent;
    this.recent = new Map();
  }
}

/** Why a store's token, which the floor of `seen` does not admit, has no holder. */
export function whyNoToken(offered: number, seen: number): string {
  return offered <= seen
    ? `but this process has seen ${seen}: the store has lost data`
    : 'but a token is a whole number below 2^53: delete the count that somebody else wrote into the store';
}

/** By backend and prefix: the modules of a process that share a backend share what was seen. */
const floors = new WeakMap<LockBackend, Map<string | undefined, TokenFloor>>();

export function floorOf(backend: LockBackend, prefix: string | undefined): TokenFloor {
  let ofBackend = floors.get(backend);
  if (!ofBackend) floors.set(backend, (ofBackend = new Map<string | undefined, TokenFloor>()));
  let floor = ofBackend.get(prefix);
  if (!floor) ofBackend.set(prefix, (floor = new TokenFloor()));
  return floor;
}
