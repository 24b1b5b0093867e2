import type { PermitRequest } from '../../contracts/primitives/semaphore-store.js';
import { driftOf } from '../../lock/lease/grant.js';
import { elapsedSince, type Instant } from '../../timing/instant.js';

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
