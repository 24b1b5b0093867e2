import { HttpError, INTERNAL } from './http-error.js';

/** Identifies the error in a log and in the HTTP body. */
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
