import { STATUS_CODES } from 'node:http';
import { HttpException } from '@nestjs/common';

/** What tells the errors apart in a log and in the HTTP body. */
export type CacheErrorCode = 'CACHE_TIMEOUT' | 'CACHE_BACKEND' | 'CACHE_KEY' | 'CACHE_CONFIG' | 'CACHE_NOT_WIRED';

/** The base of every error of the cache; an `HttpException` for the reasons that `LockError` is one. */
export abstract class CacheError extends HttpException {
  readonly code: CacheErrorCode;
  /** The keys concerned; empty where none was known yet. */
  readonly keys: readonly string[];

  /** @internal */
  protected constructor(
    code: CacheErrorCode,
    status: number,
    publicMessage: string,
    message: string,
    keys: readonly string[],
    cause?: unknown,
  ) {
    super(
      { statusCode: status, error: STATUS_CODES[status], message: publicMessage, code },
      status,
      cause === undefined ? {} : { cause },
    );
    this.code = code;
    this.keys = keys;
    this.message = message;
  }

  /** The HTTP status, for filters that look for this property; the same as `getStatus()`. */
  get statusCode(): number {
    return this.getStatus();
  }
}

const UNAVAILABLE = 'The service is busy. Try again later.';

/** The loader took longer than `loaderTimeout`, or another process loaded for longer than `lock.wait`. HTTP 503. */
export class CacheTimeoutError extends CacheError {
  constructor(message: string, keys: readonly string[]) {
    super('CACHE_TIMEOUT', 503, UNAVAILABLE, message, keys);
  }
}

/** Redis failed or did not answer in time, where the call must not do without it. HTTP 503. */
export class CacheBackendError extends CacheError {
  constructor(message: string, keys: readonly string[], cause?: unknown) {
    super('CACHE_BACKEND', 503, UNAVAILABLE, message, keys, cause);
  }
}

/** A key that would name the wrong thing. HTTP 500. */
export class CacheKeyError extends CacheError {
  constructor(message: string, keys: readonly string[] = []) {
    super('CACHE_KEY', 500, 'Internal server error', message, keys);
  }
}

/** An option with a value that it cannot take, or a value that the operation cannot use. HTTP 500. */
export class CacheConfigError extends CacheError {
  constructor(message: string, keys: readonly string[] = []) {
    super('CACHE_CONFIG', 500, 'Internal server error', message, keys);
  }
}

/** A decorated method was called on an instance that has no `CacheService`: it did not run. HTTP 500. */
export class CacheNotWiredError extends CacheError {
  constructor(message: string) {
    super('CACHE_NOT_WIRED', 500, 'Internal server error', message, []);
  }
}
