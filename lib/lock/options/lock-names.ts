import { whyNotAName } from '../../keys/key-part.js';
import { LockKeyError } from '../../errors/lock-errors.js';

/** Redis serves no other client while it takes several names in one step; for these it needs about 0.1 s. */
const MOST_NAMES = 1_000;

/** The names of a lock, sorted and without duplicates, so that all callers take several in the same order. */
export function lockNames(key: string | readonly string[]): readonly string[] {
  const names = typeof key === 'string' ? [key] : key;
  if (!Array.isArray(names) || names.length === 0) {
    throw new LockKeyError(`Lock key is ${Array.isArray(key) ? 'an empty list' : String(key)}; give one name or more`);
  }
  for (const name of names as readonly unknown[]) {
    const why = whyNotAName(name);
    if (why) throw new LockKeyError(`Lock key is ${why}; give a string of one character or more`);
  }
  const own = [...new Set(names as readonly string[])].toSorted();
  if (own.length <= MOST_NAMES) return own;
  throw new LockKeyError(
    `Lock key has ${own.length} names; give at most ${MOST_NAMES}, because they are taken in one step: lock what they ` +
      'have in common, or take them in several calls, one after the other',
  );
}
