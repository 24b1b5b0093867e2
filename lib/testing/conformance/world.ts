import type { LockBackend } from '../../contracts/lock-backend.js';

/**
 * Faults that a test makes at the store. A world leaves out what it cannot do, and the cases that need it are reported.
 */
export interface StoreFaults {
  /** The store answers nothing more until the returned function is called; its connections stay open. */
  pause(): Promise<() => Promise<void>>;
  /** The store ends and starts again, with the data that it keeps by its own settings. */
  restart(): Promise<void>;
  /** Every connection to the store is cut, once. */
  cut(): Promise<void>;
  /** Requests reach the store and no reply comes back, until the returned function is called. */
  loseReplies(): Promise<() => Promise<void>>;
  /** The store ends the session in which this backend holds its locks. */
  killSession(backend: LockBackend): Promise<void>;
}

/** The name of a fault. */
export type StoreFault = keyof StoreFaults;

/** One store, and how to reach it. */
export interface LockBackendWorld {
  /**
   * Opens a backend at the store, with connections of its own, as another process would. The suite closes it. A backend
   * in memory answers the same instance.
   */
  open(): LockBackend | Promise<LockBackend>;
  readonly faults?: Partial<StoreFaults>;
}

/** One rule that every backend keeps. */
export interface LockBackendCase {
  /** A sentence about the backend. */
  readonly name: string;
  /** The faults that the case makes. */
  readonly needs: readonly StoreFault[];
  /** Those of them that the world cannot make: report the case as skipped. */
  readonly missing: readonly StoreFault[];
  /** Rejects with an `AssertionError` when the backend breaks the rule. Takes up to a minute where leases must end. */
  run(): Promise<void>;
}
