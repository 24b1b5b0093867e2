import type { TokenRange } from '../../contracts/lock-backend.js';

/** One connection to a store whose locks end with it. It is given one call at a time. */
export interface StoreSession {
  /**
   * Takes the lock of the key if no other session has it, and returns fencing tokens above all before; `null` where it
   * is taken. It is never called for a key that this session has.
   */
  take(key: string, ticket: string): Promise<TokenRange | null>;
  free(key: string): Promise<void>;
  /** Returns fencing tokens for a key that this session has, from `least` on, above all before. */
  mint(least: number, key: string): Promise<TokenRange>;
  /** Rejects when the session has ended, or does not answer in time. */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** A store that keeps locks for sessions. */
export interface SessionStore {
  /** Opens a session. Calls `ended` once when it ends otherwise than by `close`. */
  open(ended: (why: Error) => void): Promise<StoreSession>;
}
