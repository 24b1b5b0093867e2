import type { SemaphoreStore, PermitRequest } from '../../contracts/primitive-stores.js';
import type { Warnings } from '../../errors/limited-log.js';
import { driftOf } from '../../lock/grant/grant.js';
import { backoff, currentInstant, onceRead, elapsedSince, type Instant } from '../../timing/clock.js';
import { LinkedList } from '../../timing/linked-list.js';
import type { PrimitiveCalls } from '../runtime.js';
import type { HeldPermit } from './held-permit.js';

/** A renewal that falls due within this share of the lease joins those that are due now. */
const COALESCE = 0.02;
/** The longest sleep (ms): each wake-up compares the clocks, and so notices that the machine was suspended. */
const LONGEST_NAP = 1_000;

/**
 * Renews the permits of one backend, all that are due in one round trip, and ends each at its local deadline whether or
 * not the store answers. One timer serves all; it never keeps the process alive.
 */
export class PermitWatchdog {
  private readonly permits = new LinkedList<HeldPermit>();
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;

  constructor(
    private readonly store: SemaphoreStore,
    private readonly calls: PrimitiveCalls,
    private readonly logger: Warnings,
  ) {}

  /** The permits that are held. */
  get held(): readonly HeldPermit[] {
    return this.permits.toArray();
  }

  /** Whether any permit is held. */
  get watches(): boolean {
    return this.permits.first !== undefined;
  }

  watch(permit: HeldPermit): void {
    permit.place = this.permits.push(permit);
    this.wakeNoLaterThan(Math.min(permit.dueAt, performance.now() + trustedOf(permit.turn.lease)));
  }

  /** Never renews the permit again. */
  unwatch(permit: HeldPermit): void {
    permit.place?.leave();
    permit.place = undefined;
    if (this.permits.first) return;
    clearTimeout(this.timer);
    this.wakeAt = Infinity;
  }

  private wakeNoLaterThan(at: number): void {
    if (at >= this.wakeAt) return;
    clearTimeout(this.timer);
    this.wakeAt = at;
    const nap = Math.max(0, Math.min(Math.floor(at - performance.now()), LONGEST_NAP));
    this.timer = setTimeout(() => this.wake(), nap).unref();
  }

  private wake(): void {
    this.wakeAt = Infinity;
    const now = performance.now();
    let next = Infinity;
    for (const permit of this.permits.toArray()) {
      const remaining = permit.remaining();
      // A permit without lease left is lost by now, unless the answer to a renewal may wait to be read.
      if (remaining === 0) {
        if (permit.renewing) onceRead(() => this.settle(permit));
        continue;
      }
      if (!permit.renewing && permit.dueAt <= now + COALESCE * permit.ttl) this.renew(permit);
      next = Math.min(next, now + remaining, permit.renewing ? Infinity : permit.dueAt);
    }
    if (this.permits.first) this.wakeNoLaterThan(Math.min(next, now + LONGEST_NAP));
  }

  private settle(permit: HeldPermit): void {
    permit.expire();
    if (!permit.isOver) this.wakeNoLaterThan(performance.now() + permit.remaining());
  }

  private renew(permit: HeldPermit): void {
    const { ttl, key } = permit;
    const { request } = permit.turn;
    const sentAt = currentInstant();
    const limit = Math.min(this.calls.commandTimeout, ttl / 4, Math.max(1, permit.remaining() / 2));
    const answered = (remaining: number | undefined) => {
      if (remaining === undefined) permit.lose('taken');
      else permit.renewed(sentAt, remaining);
    };
    permit.renewing = true;
    this.calls
      .run('renewal of a permit of semaphore', key, () => this.store.renew({ ...request, ttl }), {
        limit,
        // A late answer still moves the deadline; the next renewal has already been sent.
        late: answered,
      })
      .then(
        (remaining) => {
          permit.failures = 0;
          permit.renewing = false;
          answered(remaining);
          this.reschedule(permit);
        },
        (error: Error) => {
          permit.renewing = false;
          this.failed(permit, error);
        },
      );
  }

  /** Repeats at once, then after a growing pause, until the deadline. Logs the first failure in a row only. */
  private failed(permit: HeldPermit, error: Error): void {
    if (permit.isOver) return;
    permit.failures += 1;
    if (permit.failures === 1) this.logger.warn(`${error.message}; repeated until the lease ends`);
    permit.dueAt = performance.now() + (permit.failures === 1 ? 0 : backoff(permit.failures - 2));
    this.reschedule(permit);
  }

  private reschedule(permit: HeldPermit): void {
    if (!permit.isOver) this.wakeNoLaterThan(Math.min(permit.dueAt, performance.now() + permit.remaining()));
  }
}

/** How long (ms) a turn lasts at most: then the store decides again who is next, over all processes. */
const LONGEST_TURN = 10;
/** With less than this share of a grant left, nobody enters before it is renewed. */
const ENOUGH = 0.5;

/** Milliseconds that the store granted, and the instant before the request was sent from which they count. */
export interface PermitLease {
  readonly sentAt: Instant;
  readonly remaining: number;
}

/** What the store granted: a lease and a range of fencing tokens. */
export interface PermitGrant extends PermitLease {
  readonly fencingToken: number;
  readonly tokens: number;
}

/** A new object is written field by field on the path of every permit: V8 takes 2 µs to spread one into another. */
export function grantOf(
  sentAt: Instant,
  { remaining, fencingToken, tokens }: Omit<PermitGrant, 'sentAt'>,
): PermitGrant {
  return { sentAt, remaining, fencingToken, tokens };
}

/** Milliseconds of a lease that can be trusted; 0 or less when its deadline has passed. */
export function trustedOf({ sentAt, remaining }: PermitLease): number {
  return remaining - driftOf(remaining) - elapsedSince(sentAt);
}

/** Whether enough of the lease is left for a caller to enter. */
export function isEnough(lease: PermitLease): boolean {
  return trustedOf(lease) >= ENOUGH * lease.remaining;
}

/** The calls among which a turn is passed on. */
export interface TurnPlace {
  /** A caller no longer holds the permits of a turn. */
  holderLeft(): void;
  /** Whether the permits stay with this process: for a call that waits or, with `mayStay`, for one that may come. */
  keeps(turn: PermitTurn, mayStay: boolean): boolean;
  passOn(turn: PermitTurn): void;
  /** Gives the permits back that nobody has come for. */
  giveBackKept(): void;
  forgetIfIdle(): void;
}

/**
 * Permits that the store granted to this process under one ticket. Callers hold them one after another without a
 * request, each with a fencing token of its own, until the turn ends; then they go back to the store.
 */
export class PermitTurn {
  /** Whether the permits were given back, or lost. */
  over = false;
  lease: PermitLease;
  private nextToken: number;
  private readonly endOfTokens: number;
  private readonly endsAt = performance.now() + LONGEST_TURN;

  constructor(
    readonly request: PermitRequest,
    readonly place: TurnPlace,
    grant: PermitGrant,
    /** Whether its ticket had to wait in the queue at the store. */
    readonly fromQueue: boolean,
  ) {
    this.lease = grant;
    this.nextToken = grant.fencingToken;
    this.endOfTokens = grant.fencingToken + grant.tokens;
  }

  takeToken(): number {
    return this.nextToken++;
  }

  /** Whether another caller may hold the permits before they go back. */
  get goesOn(): boolean {
    return !this.over && this.nextToken < this.endOfTokens && performance.now() < this.endsAt && isEnough(this.lease);
  }

  /** The store answered `remaining` ms to a request sent at `sentAt`. The deadline never moves back. */
  renewed(sentAt: Instant, remaining: number): void {
    const lease = { sentAt, remaining };
    if (trustedOf(lease) > trustedOf(this.lease)) this.lease = lease;
  }
}
