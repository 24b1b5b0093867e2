import { STATUS_CODES } from 'node:http';
import { HttpException } from '@nestjs/common';

/** What tells the errors apart in a log and in the HTTP body. */
export type LockErrorCode =
  'LOCK_TIMEOUT' | 'LOCK_LOST' | 'LOCK_BACKEND' | 'LOCK_KEY' | 'LOCK_CONFIG' | 'LOCK_NOT_WIRED';

/**
 * Why a lock was lost.
 * - `expired`: the lease could not be renewed before its local deadline.
 * - `taken`: the backend says that the key is not ours any more (deleted, released by force, or owned by somebody
 *   else).
 * - `maxHold`: the lock was held for as long as `maxHold` allows.
 * - `shutdown`: the application ended before the holder did.
 */
export type LockLostReason = 'expired' | 'taken' | 'maxHold' | 'shutdown';

/** @internal */
export interface LockErrorDetails {
  code: LockErrorCode;
  status: number;
  /** What an HTTP client may read: fixed, without key, owner or server. */
  publicMessage: string;
  /** What the operator reads in the log. */
  message: string;
  keys: readonly string[];
  cause?: unknown;
}

/**
 * The base of every error of this library. An `HttpException`, because that is the one form which Nest 11, Nest 12 and
 * catch-all filters all answer with its own status.
 */
export abstract class LockError extends HttpException {
  readonly code: LockErrorCode;
  /** The names of the locks concerned; empty where none was known yet. */
  readonly keys: readonly string[];

  /** @internal */
  protected constructor(details: LockErrorDetails) {
    const { code, status, publicMessage, message, keys, cause } = details;
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

/** The lock was busy for as long as the caller would wait. HTTP 423. */
export class LockTimeoutError extends LockError {
  /** Milliseconds that were left of the holder's lease when it was last seen; `Infinity` where it has no expiry. */
  readonly remaining: number;
  /** Milliseconds that the caller waited. */
  readonly waited: number;

  constructor(
    keys: readonly string[],
    details: { waited: number; remaining: number; owner?: string; remedy?: string },
  ) {
    const { waited, remaining, owner, remedy } = details;
    const held = owner === undefined ? '' : `; held by ${owner} for at most ${Math.ceil(remaining)} ms more`;
    super({
      code: 'LOCK_TIMEOUT',
      status: 423,
      publicMessage: 'The resource is locked by another request. Try again later.',
      message: `${describeKeys(keys)} still busy after a wait of ${Math.round(waited)} ms${held}${remedy === undefined ? '' : `. ${remedy}`}`,
      keys,
    });
    this.remaining = remaining;
    this.waited = waited;
  }
}

/** The lock was lost while it was held: what the protected work did is unknown. HTTP 500. */
export class LockLostError extends LockError {
  readonly reason: LockLostReason;
  /** The token of the grant that was lost. */
  readonly fencingToken: number;

  constructor(
    keys: readonly string[],
    details: { reason: LockLostReason; fencingToken: number; owner: string; cause?: unknown },
  ) {
    const { reason, fencingToken, owner, cause } = details;
    super({
      code: 'LOCK_LOST',
      status: 500,
      publicMessage: 'The outcome of the request is unknown.',
      message: `${describeKeys(keys)} lost (${reason}); owner ${owner}, fencing token ${fencingToken}`,
      keys,
      cause,
    });
    this.reason = reason;
    this.fencingToken = fencingToken;
  }
}

/** The backend failed, did not answer in time, or is being shut down: nothing ran. HTTP 503. */
export class LockBackendError extends LockError {
  constructor(keys: readonly string[], message: string, cause?: unknown) {
    super({
      code: 'LOCK_BACKEND',
      status: 503,
      publicMessage: 'The lock service is unavailable. Try again later.',
      message,
      keys,
      cause,
    });
  }
}

/**
 * A lock name or key template that would lock the wrong thing, or a name that this instance does not hold. HTTP 500.
 */
export class LockKeyError extends LockError {
  constructor(message: string, keys: readonly string[] = []) {
    super({ code: 'LOCK_KEY', status: 500, publicMessage: 'Internal server error', message, keys });
  }
}

/** An option with a value that it cannot take. HTTP 500. */
export class LockConfigError extends LockError {
  constructor(message: string) {
    super({ code: 'LOCK_CONFIG', status: 500, publicMessage: 'Internal server error', message, keys: [] });
  }
}

/** A decorated method was called on an instance that has no `LockService`: it did not run. HTTP 500. */
export class LockNotWiredError extends LockError {
  constructor(message: string) {
    super({ code: 'LOCK_NOT_WIRED', status: 500, publicMessage: 'Internal server error', message, keys: [] });
  }
}

function describeKeys(keys: readonly string[]): string {
  return `${keys.length === 1 ? 'Lock' : 'Locks'} ${keys.map((key) => `"${key}"`).join(', ')}`;
}
