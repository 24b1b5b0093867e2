import { PrimitiveError } from './primitive-errors.js';

/**
 * Why a permit was lost.
 * - `expired`: the lease could not be renewed before its local deadline.
 * - `taken`: the store answered that the permit is gone: its data was lost or deleted.
 * - `shutdown`: the application ended before the holder released the permit.
 */
export type PermitLostReason = 'expired' | 'taken' | 'shutdown';

/** The bounds (ms) of `retryAfter`. */
const [SOONEST, LATEST] = [1_000, 30_000];

/** All permits were still taken after `wait` ms, or others had waited longer. HTTP 429. */
export class SemaphoreTimeoutError extends PrimitiveError<'SEMAPHORE_TIMEOUT'> {
  /** Milliseconds that the caller waited. */
  readonly waited: number;
  /** How many permits the semaphore has, as the call said. */
  readonly permits: number;
  override readonly retryAfter: number;

  constructor(key: string, { waited, count, permits }: { waited: number; count: number; permits: number }) {
    super({
      code: 'SEMAPHORE_TIMEOUT',
      status: 429,
      publicMessage: 'Too many requests run at the same time. Try again later.',
      message: `Semaphore "${key}" had no ${count} of ${permits} permits free for this call in ${Math.round(waited)} ms`,
      keys: [key],
    });
    this.waited = waited;
    this.permits = permits;
    this.retryAfter = Math.min(LATEST, Math.max(SOONEST, waited));
  }
}

/** A permit was lost while it was held: more calls than permits may run until this one ends. HTTP 500. */
export class PermitLostError extends PrimitiveError<'PERMIT_LOST'> {
  readonly reason: PermitLostReason;
  /** The token of the grant that was lost. */
  readonly fencingToken: number;

  constructor(key: string, details: { reason: PermitLostReason; fencingToken: number; owner: string }) {
    const { reason, fencingToken, owner } = details;
    super({
      code: 'PERMIT_LOST',
      status: 500,
      publicMessage: 'The outcome of the request is unknown.',
      message: `Permit of semaphore "${key}" lost (${reason}); owner ${owner}, fencing token ${fencingToken}`,
      keys: [key],
    });
    this.reason = reason;
    this.fencingToken = fencingToken;
  }
}
