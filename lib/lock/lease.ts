import { driftOf, elapsedSince, type Instant } from './lease-clock.js';
import { LockLostError, type LockLostReason } from './lock-errors.js';
import type { ResolvedLockOptions } from './lock-options.js';

export interface LeaseGrant {
  readonly names: readonly string[];
  readonly ticket: string;
  readonly fencingToken: number;
  /** When the granted request was sent. */
  readonly sentAt: Instant;
  readonly options: ResolvedLockOptions;
}

/** A hold that rests on a lease. */
export interface LeaseHolder {
  leaseLost(): void;
}

/**
 * What a backend granted, and for how long it can be trusted: `lease − drift` from before the request was sent, so that a
 * slow answer shortens it. It ends once, by release or by loss; neither can be undone.
 */
export class Lease {
  /** Called when the lease is lost, once. */
  onLost: ((error: LockLostError) => void) | undefined;
  private base: Instant;
  private span: number;
  private released = false;
  private lostError: LockLostError | undefined;
  private controller: AbortController | undefined;
  private readonly holders = new Set<LeaseHolder>();

  constructor(readonly grant: LeaseGrant) {
    this.base = grant.sentAt;
    this.span = grant.options.ttl - driftOf(grant.options.ttl);
  }

  /** Milliseconds of trusted lease left. Reads the clock: at 0 the lease is lost. */
  remaining(): number {
    if (this.released || this.lostError) return 0;
    const ofLease = this.span - elapsedSince(this.base);
    const { maxHold } = this.grant.options;
    const ofHold = maxHold === undefined ? Infinity : maxHold - elapsedSince(this.grant.sentAt);
    if (ofHold <= 0) this.lose('maxHold');
    else if (ofLease <= 0) this.lose('expired');
    else return Math.min(ofLease, ofHold);
    return 0;
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  /** Why the lease was lost, or `undefined` while it is held or after it was released. Reads the clock. */
  get lost(): LockLostError | undefined {
    this.remaining();
    return this.lostError;
  }

  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    const lost = this.lost;
    if (lost) this.controller.abort(lost);
    return this.controller.signal;
  }

  /** A renewal sent at `sentAt` was confirmed with `remaining` ms left. It never shortens the lease nor brings it back. */
  renewed(sentAt: Instant, remaining: number): void {
    if (!this.held) return;
    const span = remaining - driftOf(remaining);
    if (span - elapsedSince(sentAt) <= this.span - elapsedSince(this.base)) return;
    this.base = sentAt;
    this.span = span;
  }

  lose(reason: LockLostReason): void {
    if (this.released || this.lostError) return;
    const { names, fencingToken, ticket } = this.grant;
    this.lostError = new LockLostError(names, { reason, fencingToken, owner: ticket });
    this.controller?.abort(this.lostError);
    this.onLost?.(this.lostError);
    for (const holder of this.holders) holder.leaseLost();
  }

  /** One more hold rests on this lease: the first one and each nested one. */
  share(holder: LeaseHolder): void {
    this.holders.add(holder);
  }

  /** A hold ended. Answers whether it was the last one: the lease is then to be released. */
  unshare(holder: LeaseHolder): boolean {
    return this.holders.delete(holder) && this.holders.size === 0;
  }

  /** From here on it is neither renewed nor lost. */
  markReleased(): void {
    if (!this.lostError) this.released = true;
  }
}
