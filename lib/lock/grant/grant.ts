import type { LockBackend } from '../../contracts/lock-backend.js';
import type { TokenRange } from '../../contracts/lock-requests.js';
import type { LockLostReason } from '../../errors/lock-errors.js';
import type { LockCall } from '../../events/lock-channels.js';
import {
  type Expiring,
  type Timeout,
  type Timeouts,
  currentInstant,
  driftOf,
  elapsedBetween,
  elapsedSince,
  type Instant,
} from '../../timing/clock.js';
import type { Listed } from '../../timing/brief-collections.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';

/** The holder of a grant, as the grant and the watchdog see it. */
export interface GrantHolder {
  readonly options: Pick<ResolvedLockOptions, 'ttl' | 'renewal'>;
  /** Present where its lease may end before the grant does. */
  readonly limits: unknown;
  /** Whether a grant for a holder without renewal must be renewed once, to last as long as the holder's `ttl`. */
  readonly outlastsGrant: boolean;
  readonly held: boolean;
  readonly fencingToken: number;
  /** The call in the events of locks; `undefined` while it waits for leases of other names. */
  readonly call: LockCall | undefined;
  /** Why it was lost; reads the clock. */
  readonly lost: Error | undefined;
  /** Milliseconds of trusted lease left; reads the clock. */
  remaining(): number;
  lose(reason: LockLostReason): void;
}

/** Passes a grant from holder to holder. */
export interface GrantListener {
  /** The backend reported that another process waits for the name. */
  wantedElsewhere(ticket: string): void;
}

/**
 * What the backend granted to this process under one ticket: a deadline and a range of fencing tokens. Several callers
 * of the process may hold it, one after another, each with a `Lease` and a fencing token of its own.
 *
 * The deadline is `remaining − drift` from before the request was sent, so that a slow answer shortens it.
 */
export class Grant implements Listed, Instant {
  /** Among those that the watchdog watches. */
  index = -1;
  /** When (monotonic, whole ms) the next renewal is due; the watchdog notes it when it begins to watch. */
  dueAt = 0;
  /**
   * Whether a renewal is under way: then no other one is sent. After a standstill its answer may have arrived without
   * having been read.
   */
  renewing = false;
  /** Failed renewals since the last confirmed one. */
  declare failures: number | undefined;
  /** Present while a caller holds this grant. */
  holder: GrantHolder | undefined = undefined;
  listener: GrantListener | undefined = undefined;
  /** Called once when the next renewal was confirmed: several readers may wait for it. */
  declare onRenewed: Set<() => void> | undefined;
  /** How much lease (ms) the last request gave, if it was for more: a store may grant less than the `ttl`. Else 0. */
  most = 0;
  /** The longest `ttl` (ms) requested so far: the backend may have carried out a request without answering. */
  longest: number;
  /** Settles with the answer to a request under way that frees the names: it says whether they were its own. */
  ending: Promise<unknown> | undefined = undefined;
  /** Until when (monotonic, ms) the names stay taken by `minHold` after their holder has ended; absent without it. */
  declare minHoldUntil: number | undefined;
  // Instants are kept in whole ms: V8 makes an object of each other number. A part of a ms less is safe.
  /** When the request was sent whose answer set the current deadline. */
  monotonic: number;
  wall: number;
  /** When (monotonic) the request was sent that granted it, or that was last answered before. */
  readonly since: number;
  /** When (monotonic) the request was sent that was answered last. */
  confirmedAt: number;
  /** The lease (ms) from that instant that set the current deadline, and what is left of it after the drift. */
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
    base: Instant,
    /** Milliseconds of lease that the backend granted last. */
    public granted: number,
    tokens: TokenRange,
    /** Milliseconds that were asked for. */
    asked = granted,
  ) {
    this.longest = asked;
    this.since = this.confirmedAt = this.monotonic = Math.floor(base.monotonic);
    this.wall = Math.floor(base.wall);
    this.trusted = granted;
    this.span = Math.floor(granted - driftOf(granted));
    this.reserved = this.tokens = tokens.count;
    this.next = tokens.first;
  }

  /** Milliseconds until the deadline; 0 or less after it. */
  remaining(): number {
    return this.span - elapsedSince(this);
  }

  /**
   * Starts the minimum hold: the names stay taken for `minHold` ms from now, whenever the holder ends. Counting from
   * now rather than from the request is safe, because the backend granted the names before now.
   */
  startMinHold(minHold: number): void {
    this.minHoldUntil = Math.max(this.minHoldUntil ?? 0, performance.now() + minHold);
  }

  /** Whether the names would stay taken if their holder ended now. */
  get inMinHold(): boolean {
    return this.minHoldUntil !== undefined && this.minHoldUntil > performance.now();
  }

  /** Whether the lease at the backend lasts for another `ms` without a renewal. */
  lastsFor(ms: number): boolean {
    return this.remaining() + driftOf(ms) >= ms;
  }

  /**
   * Called when the backend answered `answered` ms to a request for `asked` ms that was sent at `sentAt`. No more
   * counts than was asked for, then or earlier; a check asks for no longer lease. The deadline never moves back.
   */
  renewed(sentAt: Instant, answered: number, asked: number): void {
    const longest = answered > asked ? Math.max(asked, this.trusted - elapsedBetween(this, sentAt)) : asked;
    const remaining = trustedLease(answered, longest);
    this.confirmedAt = Math.floor(sentAt.monotonic);
    this.granted = remaining;
    this.most = remaining < asked ? remaining : 0;
    const span = Math.floor(remaining - driftOf(remaining));
    if (span - elapsedSince(sentAt) > this.remaining()) this.trust(sentAt, remaining, span);
    for (const renewed of this.onRenewed ?? []) renewed();
  }

  /** From now on the lease ends `ttl` ms after this moment, as the backend learns by a request. */
  endAfter(ttl: number): void {
    const span = Math.floor(ttl - driftOf(ttl));
    if (span >= this.remaining()) return;
    this.trust(currentInstant(), ttl, span);
    this.confirmedAt = this.monotonic;
    this.granted = ttl;
  }

  private trust({ monotonic, wall }: Instant, lease: number, span: number): void {
    this.monotonic = Math.floor(monotonic);
    this.wall = Math.floor(wall);
    this.trusted = lease;
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
  readonly limits = undefined;
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

/**
 * How many names a floor remembers one by one, at least: those that were granted last. At most twice as many. A power
 * of two fills the table that V8 makes.
 */
const MOST_NAMES = 4_096;

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
    // Not computed where nothing is taken off: V8 would make an object of the number.
    const left = rise ? (least === first ? count : first + count - least) : 0;
    if (left <= 0) return { first: least, count: 0 };
    const last = reads ? least : least + left - 1;
    for (const name of names) this.saw(name, last);
    return { first: least, count: left };
  }

  /** A token of the name was handed on; another may have been issued after it, and have arrived before. */
  saw(name: string, token: number): void {
    const largest = Math.max(token, this.of(name));
    if (this.recent.size === MOST_NAMES && !this.recent.has(name)) this.forgetEarlier();
    this.recent.set(name, largest);
  }

  private forgetEarlier(): void {
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
