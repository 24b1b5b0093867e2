import calculateSlot from 'cluster-key-slot';
import { LockKeyError } from '../../../errors/lock-errors.js';
import { lockKey } from './redis-lock-keys.js';

/** @throws LockKeyError for names that a Cluster cannot take in one step */
export function requireOneSlot(keyPrefix = '', prefix: string | undefined, names: readonly string[]): void {
  if (new Set(names.map((name) => calculateSlot(keyPrefix + lockKey({ prefix, name })))).size === 1) return;
  const [first = '', second = ''] = names;
  throw new LockKeyError(
    `Locks ${names.map((name) => `"${name}"`).join(', ')} lie in different slots of the Redis Cluster and cannot be ` +
      `taken in one step; begin their names with one tag in braces, for example "{shop}${first}" and "{shop}${second}"`,
    names,
  );
}
