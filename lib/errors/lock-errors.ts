import { quoted } from '../keys/key-part.js';
import { HttpError, INTERNAL } from './http-error.js';

/** Identifies the error in a log and in the HTTP body. @inline */
export type LockErrorCode =
  'LOCK_TIMEOUT' | 'LOCK_LOST' | 'LOCK_BACKEND' | 'LOCK_KEY' | 'LOCK_UPGRADE' | 'LOCK_CONFIG' | 'LOCK_NOT_WIRED';

/**
 * Why a lock was lost.
 * - `expired`: the lease could not be renewed before its local deadline.
 * - `taken`: the backend answered that another owner, or nobody, has the key: it was deleted or released by force.
 * - `maxHold`: the holder reached its `maxHold`.
 * - `shutdown`: the application ended before the holder released the lock.
 * - `released`: the holder had released it. Only `assertHeld()` and `extend()` say so; no event and no measure does.
 */
export type LockLostReason = 'expired' | 'taken' | 'maxHold' | 'shutdown' | 'released';

/** The base of every error of locks: an `HttpException` with `code`, `keys` and `statusCode`. */
export abstract class LockError extends HttpError<LockErrorCode> {}

/** The lock was still busy after `wait` ms. HTTP 423. */
export class LockTimeoutError extends LockError {
  /** Milliseconds left of the holder's lease when the backend last answered; `Infinity` if the key has no expiry. */
  readonly remaining: number;
  /** Milliseconds that the caller waited. */
  readonly waited: number;

  constructor(
    keys: readonly string[],
    details: { waited: number; remaining: number; owner?: string; remedy?: string },
  ) {
    const { waited, remaining, owner, remedy } = details;
    const held =
      owner === undefined
        ? ''
        : `; held by ${owner} ${remaining === Infinity ? 'without expiry' : `for at most ${Math.ceil(remaining)} ms more`}`;
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

/** The lock was lost while it was held: it is unknown how much of the protected work took effect. HTTP 500. */
export class LockLostError extends LockError {
  readonly reason: LockLostReason;
  /** The token of the grant that was lost. */
  readonly fencingToken: number;

  constructor(
    keys: readonly string[],
    details: { reason: LockLostReason; fencingToken: number; owner: string; cause?: unknown },
  ) {
    const { reason, fencingToken, owner, cause } = details;
    const what = reason === 'released' ? 'is held no longer' : 'lost';
    super({
      code: 'LOCK_LOST',
      status: 500,
      publicMessage: 'The outcome of the request is unknown.',
      message: `${describeKeys(keys)} ${what} (${reason}); owner ${owner}, fencing token ${fencingToken}`,
      keys,
      cause,
    });
    this.reason = reason;
    this.fencingToken = fencingToken;
  }
}

/** The backend failed or did not answer in time, or the application is shutting down: nothing ran. HTTP 503. */
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
 * Redis granted the lock, but fewer than `minReplicas` replicas confirmed it in time: it was released again, and
 * nothing ran. HTTP 503.
 */
export class LockReplicationError extends LockBackendError {
  /** How many replicas confirmed it. */
  readonly confirmed: number;
  /** How many had to. */
  readonly wanted: number;

  constructor(keys: readonly string[], details: { confirmed: number; wanted: number; within: number }) {
    const { confirmed, wanted, within } = details;
    super(
      keys,
      `${describeKeys(keys)}: ${confirmed} of ${wanted} replicas confirmed the grant within ${within} ms; it is released`,
    );
    this.confirmed = confirmed;
    this.wanted = wanted;
  }
}

/** A name is invalid, a key template does not fit the method, or the caller does not hold the name. HTTP 500. */
export class LockKeyError extends LockError {
  constructor(message: string, keys: readonly string[] = []) {
    super({ code: 'LOCK_KEY', ...INTERNAL, message, keys });
  }
}

/**
 * The call asks for a name to write inside of a hold that reads it: two such calls would wait for each other for ever.
 * HTTP 500.
 */
export class LockUpgradeError extends LockError {
  constructor(keys: readonly string[]) {
    super({
      code: 'LOCK_UPGRADE',
      ...INTERNAL,
      message:
        `${describeKeys(keys)} cannot be taken to write inside of a hold that reads: two readers that wait to write ` +
        'would wait for each other. Take it to write from the beginning, or end the read hold first and read again ' +
        'inside of the write hold',
      keys,
    });
  }
}

/** An option has an invalid value. HTTP 500. */
export class LockConfigError extends LockError {
  constructor(message: string) {
    super({ code: 'LOCK_CONFIG', ...INTERNAL, message, keys: [] });
  }
}

/** A decorated method was called on an instance that has no `LockService`: it did not run. HTTP 500. */
export class LockNotWiredError extends LockError {
  constructor(message: string) {
    super({ code: 'LOCK_NOT_WIRED', ...INTERNAL, message, keys: [] });
  }
}

function describeKeys(keys: readonly string[]): string {
  return `${keys.length === 1 ? 'Lock' : 'Locks'} ${quoted(keys)}`;
}
