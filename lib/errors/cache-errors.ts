import { HttpError, INTERNAL } from './http-error.js';

/** Identifies the error in a log and in the HTTP body. @inline */
export type CacheErrorCode = 'CACHE_TIMEOUT' | 'CACHE_BACKEND' | 'CACHE_KEY' | 'CACHE_CONFIG' | 'CACHE_NOT_WIRED';

/** The base of every error of the cache: an `HttpException` with `code`, `keys` and `statusCode`. */
export abstract class CacheError extends HttpError<CacheErrorCode> {}

const UNAVAILABLE = { status: 503, publicMessage: 'The service is busy. Try again later.' } as const;

/** The loader took longer than `loaderTimeout`, or another process loaded for longer than `lock.wait`. HTTP 503. */
export class CacheTimeoutError extends CacheError {
  constructor(message: string, keys: readonly string[]) {
    super({ code: 'CACHE_TIMEOUT', ...UNAVAILABLE, message, keys });
  }
}

/** Redis failed or did not answer in time, and the call cannot go on without it. HTTP 503. */
export class CacheBackendError extends CacheError {
  constructor(message: string, keys: readonly string[], cause?: unknown) {
    super({ code: 'CACHE_BACKEND', ...UNAVAILABLE, message, keys, cause });
  }
}

/** A key is invalid, or a key template does not fit the method. HTTP 500. */
export class CacheKeyError extends CacheError {
  constructor(message: string, keys: readonly string[] = []) {
    super({ code: 'CACHE_KEY', ...INTERNAL, message, keys });
  }
}

/** An option has an invalid value, or an operation was given a value that it cannot use. HTTP 500. */
export class CacheConfigError extends CacheError {
  constructor(message: string, keys: readonly string[] = []) {
    super({ code: 'CACHE_CONFIG', ...INTERNAL, message, keys });
  }
}

/** A decorated method was called on an instance that has no `CacheService`: it did not run. HTTP 500. */
export class CacheNotWiredError extends CacheError {
  constructor(message: string) {
    super({ code: 'CACHE_NOT_WIRED', ...INTERNAL, message, keys: [] });
  }
}
