import { whyNotAName } from '../keys/key-part.js';
import { LockKeyError } from './lock-errors.js';

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
  return names.length === 1 ? names : [...new Set(names as readonly string[])].toSorted();
}
