import { encodeKeyPart, whyNotAKeyPart, whyNotAName } from '../../keys/key-part.js';
import { CacheKeyError } from '../../errors/cache-errors.js';

/** One key, or several without duplicates. @throws CacheKeyError */
export function cacheKeys(keys: string | readonly string[]): readonly string[] {
  if (typeof keys === 'string') return [cacheKey(keys)];
  if (!Array.isArray(keys)) throw new CacheKeyError(`Cache keys are ${String(keys)}; give a key or a list of keys`);
  return [...new Set((keys as readonly string[]).map(cacheKey))];
}

/** @throws CacheKeyError */
export function cacheKey(key: string): string {
  const why = whyNotAName(key);
  if (why) throw new CacheKeyError(`Cache key is ${why}; give a string of one character or more`);
  return key;
}

/** The beginning of keys, which may be ''. @throws CacheKeyError */
export function keyBeginning(prefix: string): string {
  return prefix === '' ? prefix : cacheKey(prefix);
}

/** The parts joined by `:`, each escaped. @throws CacheKeyError */
export function composedKey(parts: readonly unknown[]): string {
  if (parts.length === 0) throw new CacheKeyError('A cache key has no parts; give one or more');
  return parts
    .map((part, index) => {
      const why = whyNotAKeyPart(part);
      if (why === undefined) return encodeKeyPart(String(part));
      throw new CacheKeyError(`Part ${index + 1} of a cache key is ${why}; give a string, number, bigint or boolean`);
    })
    .join(':');
}
