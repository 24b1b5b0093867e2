import type { Duration } from '../../options/checks.js';

/**
 * One hold of one or several locks. Obtained from `LockService`; in a decorated method, from `LockService.current()`.
 */
export interface Lock extends AsyncDisposable {
  /** The names held, sorted and without duplicates. */
  readonly keys: readonly string[];
  /**
   * Exactly what the backend stores as the owner. Holders of one process share it if the process passes the lock from
   * one to the next without a request to the backend; `fencingToken` distinguishes them.
   */
  readonly owner: string;
  /**
   * Rises with every grant of a name to write. A hold that reads has a token above those of all earlier writers and
   * below those of all later ones; readers may share one. Send it to the protected resource with each read and write,
   * and let the resource refuse a token lower than the highest it has seen. Several names have one token; re-entry
   * keeps it.
   *
   * Read it each time you send it: a nested hold that takes further names gets a larger token, and from then on the
   * hold around it has that token, too.
   */
  readonly fencingToken: number;

  /**
   * Aborted with the `LockLostError` when the lock is lost, at the latest at its local deadline, whatever the backend
   * does. Reading it reads the clock, so that it is right even directly after the process was paused.
   */
  get signal(): AbortSignal;

  /** Whether the lock is still trusted. Reads the clock. */
  get held(): boolean;

  /** Milliseconds of trusted lease left, counted from before the request was sent; 0 once lost or released. */
  remaining(): number;

  /** Throws `LockLostError` unless the lock is held: call it before a step that must not run unlocked. */
  assertHeld(): void;

  /**
   * Extends the lease to at least `ttl` from now (default: its own ttl). Never shortens it.
   *
   * @throws LockConfigError for a `ttl` that is not a duration of at least 1 ms
   * @throws LockLostError when the lock is no longer ours
   * @throws LockBackendError when the backend did not confirm it in time; the lease then stays as it is
   */
  extend(ttl?: Duration): Promise<void>;

  /**
   * Releases the lock. A second call settles as the first did. While the backend does not confirm, the release is
   * repeated in the background until the lease ends; this call waits only for the first attempt, and with `release:
   * 'background'` for none.
   *
   * @throws LockLostError when it had been lost before
   */
  release(): Promise<void>;
}

/** What the backend knows of a lock. */
export interface LockInfo {
  /** The owner as stored, also that of a foreign client; `readers` where the name is held to read. */
  readonly owner: string;
  /**
   * How often the name is held to read: once for each process that reads, however many of its callers do, and once for
   * each read hold of several names. Absent where it is held to write.
   */
  readonly readers?: number;
  /** The `label` of the application that holds it; absent for a foreign client, or if the application has none. */
  readonly label?: string;
  /** Milliseconds left of its lease; `Infinity` if it has no expiry. */
  readonly ttl: number;
  /**
   * The newest token issued for the name; `null` if there is none: a foreign client set the key, or none was issued for
   * longer than `fenceTtl`.
   */
  readonly fencingToken: number | null;
  /** How many callers of this instance wait for it, plus the waiters in the backend's queue, if it keeps one. */
  readonly waiting: number;
  /**
   * The processes in the backend's queue, the next one first, 100 at most; callers of one process share its place. A
   * process that died leaves the list after 5 s, or with its session. Absent where the backend keeps no queue or does
   * not tell its order.
   */
  readonly waiters?: readonly LockWaiter[];
}

/** A process that waits for a lock. */
export interface LockWaiter {
  /** What will be stored as the owner when its turn comes. */
  readonly owner: string;
  /** The `label` of the application; absent if the store has none of it. */
  readonly label?: string;
  readonly mode: 'read' | 'write';
}

/** One of the locks that `LockService.list` found. */
export interface ListedLock extends LockInfo {
  readonly key: string;
  /**
   * Why the store does not tell the rest, which says nothing then (`owner` is empty): the key is of another type, or
   * the user may not read it.
   */
  readonly error?: string;
}

/** Some of the locks that are held. */
export interface LockPage {
  readonly locks: readonly ListedLock[];
  /** Give it to the next call; `undefined` on the last page. */
  readonly cursor: string | undefined;
}
