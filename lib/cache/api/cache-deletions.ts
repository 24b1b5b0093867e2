import type { CacheEntryOptions } from '../options/cache-options.js';
import type { Duration } from '../../options/duration.js';

/** Options of `invalidate`, `mutate` and `del`. */
export type InvalidateOptions = Pick<CacheEntryOptions, 'barrier' | 'onRedisError'>;

/** Options of `deleteByPrefix`, `deleteByPattern`, `flush` and `doubleDeleteByPrefix`. */
export interface DeleteMatchingOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How many keys to scan in one step; Redis serves other clients between the steps. @default 100 */
  batch?: number;
}

/** Options of `doubleDelete` and `doubleDeleteByPrefix`. */
export interface DoubleDeleteOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How long after the deletion that follows the write the last one happens: longer than the replicas lag. */
  delay: Duration;
}

/** Deletes values, and keeps loads that began before from storing theirs. */
export interface CacheDeletions {
  /**
   * As `invalidate`, and returns how many values Redis had, including stale ones and those invalidated by a tag. Does
   * not count deletions that Redis did not confirm.
   */
  del(keys: string | readonly string[], options?: InvalidateOptions): Promise<number>;

  /**
   * Deletes the values, and takes the load lease of every load that began before, in any process, so that it stores
   * nothing. Call it after the write has been committed.
   *
   * With `onRedisError: 'open'` it resolves within `commandTimeout` even if Redis does not answer. The process then
   * repeats the deletion until Redis confirms it, and does not read the keys from Redis meanwhile.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'; the deletion is repeated nevertheless
   */
  invalidate(keys: string | readonly string[], options?: InvalidateOptions): Promise<void>;

  /**
   * Deletes the keys before and after `write`, and lets nothing be stored under them while it runs. If the process dies
   * between the commit of the write and the second deletion, no old value remains, and nothing is stored until the
   * barrier ends: 10 s after its last renewal.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write` and `onRedisError` is 'throw'; `write` did not run
   */
  mutate<T>(keys: string | readonly string[], write: () => Promise<T>, options?: InvalidateOptions): Promise<T>;

  /**
   * Deletes every value that has one of the tags, and keeps loads that began before from storing such a value. Each
   * namespace has tags of its own.
   */
  deleteByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * As `deleteByTag`, but keeps the values, stale at once: a read loads, and falls back on the old value until
   * `staleTtl` after the expiry of the tag, as long as Redis keeps it.
   */
  expireByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * Deletes every value whose key begins with the prefix, and returns their number. Scans all keys of the server, in
   * batches. Loads that began before it store nothing.
   */
  deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number>;

  /**
   * As `deleteByPrefix`, for keys that match a glob of Redis: `*`, `?`, `[abc]`, and `\` before a literal character.
   */
  deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number>;

  /**
   * Deletes the keys before and after `write`, and once more `delay` later. Redis keeps the last deletion, and another
   * process carries it out if this one dies. So a loader that read from a replica leaves no old value, as long as the
   * replica lags by less than `delay`.
   *
   * Prefer `mutate`, or `invalidate` with a `barrier` as long as the lag: they let no old value be stored in the first
   * place, while here readers see what they have stored meanwhile, and load twice.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`, which then did not run
   */
  doubleDelete<T>(keys: string | readonly string[], write: () => Promise<T>, options: DoubleDeleteOptions): Promise<T>;

  /**
   * As `doubleDelete`, for every value whose key begins with the prefix: each of the three deletions scans all keys of
   * the server, in batches.
   *
   * @throws what `write` throws; the values are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`: it did not run
   */
  doubleDeleteByPrefix<T>(
    prefix: string,
    write: () => Promise<T>,
    options: DoubleDeleteOptions & DeleteMatchingOptions,
  ): Promise<T>;

  /**
   * Runs `write`, then deletes every value whose key begins with the prefix, even if `write` failed: it may have been
   * carried out.
   */
  flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T>;
}
