import { PrimitiveError } from './primitive-errors.js';

/** Identifies the error in a log and in the HTTP body. @inline */
export type IdempotencyErrorCode =
  'IDEMPOTENCY_CONFLICT' | 'IDEMPOTENCY_RUNNING' | 'IDEMPOTENCY_RESULT' | 'IDEMPOTENCY_HEADER';

/** The key was used before for another request: their fingerprints differ. The method did not run. HTTP 422. */
export class IdempotencyConflictError extends PrimitiveError<IdempotencyErrorCode> {
  constructor(key: string) {
    super({
      code: 'IDEMPOTENCY_CONFLICT',
      status: 422,
      publicMessage: 'The idempotency key was used for a different request. Use a new key.',
      message: `Idempotency key "${key}" belongs to another request: the fingerprints differ; use a new key`,
      keys: [key],
    });
  }
}

/**
 * Another call with this key still runs, or this one is inside of its run. This call did not run the method. HTTP 409
 * with `Retry-After`.
 */
export class IdempotencyRunningError extends PrimitiveError<IdempotencyErrorCode> {
  override readonly retryAfter: number;

  /** `inside`: the call is inside of the run with that key. */
  constructor(key: string, details: { waited: number; retryAfter: number; inside?: boolean; cause?: unknown }) {
    const { waited, retryAfter, inside = false, cause } = details;
    const why = inside
      ? 'this call is inside of the run with that key, and would wait for itself; give it another key, or call what ' +
        'the method does without the decorator'
      : `another call with it still runs, after a wait of ${Math.round(waited)} ms`;
    super({
      code: 'IDEMPOTENCY_RUNNING',
      status: 409,
      publicMessage: 'A request with the same idempotency key is still running. Try again later.',
      message: `Idempotency key "${key}": ${why}`,
      keys: [key],
      cause,
    });
    this.retryAfter = retryAfter;
  }
}

/**
 * The method ran, but there is no result to give to its caller and to repeats: it cannot be kept, was not stored, or
 * cannot be read. Side effects of the method have happened. HTTP 500.
 */
export class IdempotencyResultError extends PrimitiveError<IdempotencyErrorCode> {
  /**
   * Whether the next call with this key may run the method again. `false` if the store has noted that the method ran:
   * repeats get this error, too, until the `ttl` ends.
   */
  readonly mayRunAgain: boolean;

  constructor(key: string, details: { why: string; mayRunAgain: boolean; cause?: unknown }) {
    const { why, mayRunAgain, cause } = details;
    super({
      code: 'IDEMPOTENCY_RESULT',
      status: 500,
      publicMessage: 'The request was carried out, but its result is not available.',
      message:
        `Idempotency key "${key}": the method ran, but ${why}. ` +
        (mayRunAgain
          ? 'The next call with this key may run it again'
          : 'Repeats do not run it again and get this error'),
      keys: [key],
      cause,
    });
    this.mayRunAgain = mayRunAgain;
  }
}

/** The `Idempotency-Key` header of a request is missing or invalid. The handler did not run. HTTP 400. */
export class IdempotencyHeaderError extends PrimitiveError<IdempotencyErrorCode> {
  constructor(why: string) {
    super({ code: 'IDEMPOTENCY_HEADER', status: 400, publicMessage: why, message: why, keys: [] });
  }
}
