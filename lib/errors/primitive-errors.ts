import { HttpError, INTERNAL } from './http-error.js';

/** Identifies the error in a log and in the HTTP body. @inline */
export type PrimitiveErrorCode =
  'PRIMITIVE_BACKEND' | 'PRIMITIVE_KEY' | 'PRIMITIVE_CONFIG' | 'PRIMITIVE_NOT_WIRED' | 'RATE_LIMIT_EXCEEDED';

/**
 * The base of the errors of what is built on locks (semaphores, rate limits, ...): an `HttpException` with `code`,
 * `keys` and `statusCode`.
 */
export abstract class PrimitiveError<Code extends string = string> extends HttpError<Code> {
  /** Milliseconds after which another try may succeed: HTTP answers say it as `Retry-After`. */
  readonly retryAfter?: number;
}

/** The store failed or did not answer in time, or the application is shutting down. HTTP 503. */
export class PrimitiveBackendError extends PrimitiveError<PrimitiveErrorCode> {
  constructor(message: string, keys: readonly string[], cause?: unknown) {
    super({
      code: 'PRIMITIVE_BACKEND',
      status: 503,
      publicMessage: 'The service is unavailable. Try again later.',
      message,
      keys,
      cause,
    });
  }
}

/** A key is invalid, or a key template does not fit the method. HTTP 500. */
export class PrimitiveKeyError extends PrimitiveError<PrimitiveErrorCode> {
  constructor(message: string, keys: readonly string[] = []) {
    super({ code: 'PRIMITIVE_KEY', ...INTERNAL, message, keys });
  }
}

/** An option has an invalid value, or the backend cannot do what was asked for. HTTP 500. */
export class PrimitiveConfigError extends PrimitiveError<PrimitiveErrorCode> {
  constructor(message: string) {
    super({ code: 'PRIMITIVE_CONFIG', ...INTERNAL, message, keys: [] });
  }
}

/** A decorated method was called on an instance that lacks the service it needs: it did not run. HTTP 500. */
export class PrimitiveNotWiredError extends PrimitiveError<PrimitiveErrorCode> {
  constructor(message: string) {
    super({ code: 'PRIMITIVE_NOT_WIRED', ...INTERNAL, message, keys: [] });
  }
}

/** A rate limit has too few units left for this call. HTTP 429. */
export class RateLimitExceededError extends PrimitiveError<PrimitiveErrorCode> {
  constructor(
    key: string,
    /** The limit that was reached. */
    readonly limit: number,
    override readonly retryAfter: number,
  ) {
    super({
      code: 'RATE_LIMIT_EXCEEDED',
      status: 429,
      publicMessage: 'Too many requests. Try again later.',
      message: `The rate limit "${key}" of ${limit} is reached; try again in ${retryAfter} ms`,
      keys: [key],
    });
  }
}

/** The latch was not open after `wait` ms. HTTP 503. */
export class LatchTimeoutError extends PrimitiveError<'LATCH_TIMEOUT'> {
  /** Milliseconds that the caller waited. */
  readonly waited: number;
  /** How many arrivals were missing; `undefined` if the latch was not defined. */
  readonly remaining: number | undefined;

  constructor(key: string, { waited, remaining }: { waited: number; remaining: number | undefined }) {
    const why = remaining === undefined ? 'was not defined, or its ttl is over' : `missed ${remaining} arrivals`;
    super({
      code: 'LATCH_TIMEOUT',
      status: 503,
      publicMessage: 'The service is busy. Try again later.',
      message: `Latch "${key}" was not open after a wait of ${Math.round(waited)} ms: it ${why}`,
      keys: [key],
    });
    this.waited = waited;
    this.remaining = remaining;
  }
}

/** There is no latch of that name: it was not defined, or its `ttl` is over. HTTP 500. */
export class LatchNotDefinedError extends PrimitiveError<'LATCH_NOT_DEFINED'> {
  constructor(key: string) {
    super({
      code: 'LATCH_NOT_DEFINED',
      ...INTERNAL,
      message: `Latch "${key}" does not exist: it was not defined, or its ttl is over; call define() first`,
      keys: [key],
    });
  }
}

/** This process does not lead: nothing ran. Another process may. HTTP 503. */
export class NotLeaderError extends PrimitiveError<'NOT_LEADER'> {
  constructor(name: string) {
    super({
      code: 'NOT_LEADER',
      status: 503,
      publicMessage: 'This instance cannot serve the request. Try again.',
      message: `This process does not lead "${name}"; ask the leader, or use a candidacy to run on the leader only`,
      keys: [name],
    });
  }
}

/**
 * Why a permit was lost.
 * - `expired`: the lease could not be renewed before its local deadline.
 * - `taken`: the store answered that the permit is gone: its data was lost or deleted.
 * - `shutdown`: the application ended before the holder released the permit.
 * - `released`: the holder had given it back. Only `assertHeld()` says so; no event and no measure does.
 */
export type PermitLostReason = 'expired' | 'taken' | 'shutdown' | 'released';

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
    const what = reason === 'released' ? 'is held no longer' : 'lost';
    super({
      code: 'PERMIT_LOST',
      status: 500,
      publicMessage: 'The outcome of the request is unknown.',
      message: `Permit of semaphore "${key}" ${what} (${reason}); owner ${owner}, fencing token ${fencingToken}`,
      keys: [key],
    });
    this.reason = reason;
    this.fencingToken = fencingToken;
  }
}
