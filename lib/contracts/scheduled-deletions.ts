import type { Pending } from './pending.js';

/** Deletions that are due later, and outlive the process that scheduled them. */
export interface ScheduledDeletions {
  /** Deletes the keys in `delay` ms by the clock of the store. Of two times for one key, the later one counts. */
  schedule(keys: readonly string[], delay: number): Pending<void>;
  /**
   * The keys that are due, at most `limit`. No other process gets them for `claim` ms; then they are due again, unless
   * `done`.
   * `next`: milliseconds until the next one is due, `null` when there is none.
   */
  claim(limit: number, claim: number): Pending<{ readonly keys: readonly string[]; readonly next: number | null }>;
  /** Forgets the keys, except those that were scheduled again since the claim. */
  done(keys: readonly string[]): Pending<void>;
}
