import type { Pending } from './pending.js';

/** Deletions that are due later, and outlive the process that scheduled them. The cache gives each a name. */
export interface ScheduledDeletions {
  /**
   * Makes the deletions due in `delay` ms by the clock of the store. Of two times for one name, the later one counts.
   */
  schedule(names: readonly string[], delay: number): Pending<void>;
  /**
   * The deletions that are due, at most `limit`. No other process gets them for `claim` ms; then they are due again,
   * unless `done`.
   * `next`: milliseconds until the next one is due, `null` when there is none.
   */
  claim(limit: number, claim: number): Pending<{ readonly names: readonly string[]; readonly next: number | null }>;
  /** Makes the claims end `claim` ms from now, except for deletions that were scheduled again since the claim. */
  renew(names: readonly string[], claim: number): Pending<void>;
  /** Forgets the deletions, except those that were scheduled again since the claim. */
  done(names: readonly string[]): Pending<void>;
}
