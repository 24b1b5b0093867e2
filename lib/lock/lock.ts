import type { Duration } from '../options/duration.js';

/**
 * One hold of one or several locks. Obtained from `LockService`; in a decorated method, from `LockService.current()`.
 */
export interface Lock extends AsyncDisposable {
  /** The names held, sorted and without duplicates. */
  readonly keys: readonly string[];
  /**
   * Exactly what the backend stores as the owner. Holders of one process to whom the lock is passed on without a
   * request to the backend share it; `fencingToken` tells them apart.
   */
  readonly owner: string;
  /**
   * Rises with every grant of a name. Present it to the protected resource at the read and at the write, and let the
   * resource refuse one that is lower than the highest it has seen. Several names have one token; re-entry keeps it.
   *
   * Read it whenever you present it: where a nested hold takes further names, its token is larger, and from then on
   * that of the hold around it, too.
   */
  readonly fencingToken: number;

  /**
   * Aborted with the `LockLostError` when the lock is lost, at the latest at its local deadline, whatever the backend
   * does. Reading it reads the clock, so that it tells the truth also right after the process was paused.
   */
  get signal(): AbortSignal;

  /** Whether the lock is still trusted. Reads the clock. */
  get held(): boolean;

  /** Milliseconds of trusted lease left, counted from before the request was sent; 0 once lost or released. */
  remaining(): number;

  /** Throws `LockLostError` unless the lock is held: call it before a step that must not run unlocked. */
  assertHeld(): void;

  /**
   * Lets the lease run for at least `ttl` from now (default: its own ttl). Never shortens it.
   *
   * @throws LockConfigError for a `ttl` that is no duration from 1 ms on
   * @throws LockLostError when it is not ours any more
   * @throws LockBackendError when the backend did not confirm it in time; the lease then stays as it is
   */
  extend(ttl?: Duration): Promise<void>;

  /**
   * Gives the lock back. A second call answers as the first did. While the backend does not confirm, it is sent again
   * in the background until the lease ends; this call waits for the first send only.
   *
   * @throws LockLostError when it had been lost before
   */
  release(): Promise<void>;
}

/** What the backend knows of a lock. */
export interface LockInfo {
  /** The owner as stored, also that of a foreign client. */
  readonly owner: string;
  /**
   * The `label` of the application that holds it; absent where it is no application of this library, or did not say.
   */
  readonly label?: string;
  /** Milliseconds left of its lease; `Infinity` where it has no expiry. */
  readonly ttl: number;
  /**
   * The newest token issued for the name; `null` when there is none, as for a key that a foreign client set, or where
   * none was issued for longer than `fenceTtl`.
   */
  readonly fencingToken: number | null;
  /** How many callers of this instance wait for it, and how many are in the queue of a backend that keeps one. */
  readonly waiting: number;
}
