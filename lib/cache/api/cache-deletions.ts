import type { CacheEntryOptions } from '../options/cache-options.js';
import type { Duration } from '../options/cache-durations.js';

/** What `invalidate`, `mutate` and the deletions take. */
export type InvalidateOptions = Pick<CacheEntryOptions, 'barrier' | 'onRedisError'>;

/** Options of `deleteByPrefix` and `deleteByPattern`. */
export interface DeleteMatchingOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How many keys to look at in one step; other clients are served between the steps. @default 100 */
  batch?: number;
}

/** Deletes values, and keeps loads that began before from storing. */
export interface CacheDeletions {
  /**
   * As `invalidate`, and answers how many values Redis had: also of those that were stale, or ended by a tag. What was
   * deleted without its confirmation is not counted.
   */
  del(keys: string | readonly string[], options?: InvalidateOptions): Promise<number>;

  /**
   * Deletes the values, and fences whatever loads them, in any process: what it read before is not stored. Call it
   * after the write has been committed.
   *
   * With `onRedisError: 'open'` it resolves within `commandTimeout` also when Redis is away; it is then repeated until
   * Redis confirms it, and this process does not read the keys from Redis meanwhile.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'; it is repeated nevertheless
   */
  invalidate(keys: string | readonly string[], options?: InvalidateOptions): Promise<void>;

  /**
   * Runs `write` while nothing is stored under the keys, and deletes them before and after. Should the process die
   * between the commit of the write and its end here, nothing old is left, and nothing is stored until the barrier ends
   * (10 s), which is renewed while `write` runs.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`, and `onRedisError` is 'throw': it did not run
   */
  mutate<T>(keys: string | readonly string[], write: () => Promise<T>, options?: InvalidateOptions): Promise<T>;

  /**
   * Deletes every value that bears one of the tags, and does not let loads that began before store any. The tags of a
   * namespace are its own.
   */
  deleteByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * As `deleteByTag`, but what bears one of the tags is kept, and stale at once: a read loads, and falls back on it for
   * its `staleTtl`, from the last expiry of the tag on and as long as Redis keeps it.
   */
  expireByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * Deletes every value whose key begins with the prefix, and answers how many there were. It looks at every key of the
   * server, a few at a time; loads that began before it store nothing.
   */
  deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number>;

  /**
   * As `deleteByPrefix`, for keys that match a glob of Redis: `*`, `?`, `[abc]`, and `\` before a character that means
   * itself.
   */
  deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number>;

  /**
   * Deletes the keys before and after `write`, and once more `delay` after that. The last deletion is kept in Redis,
   * and carried out by another process should this one die; so a loader that read from a replica which lags behind by
   * less than `delay` leaves nothing old.
   *
   * Second choice: readers see what they have stored meanwhile, and load twice. `mutate`, and `invalidate` with a
   * `barrier` as long as the replica lags, let nothing old be stored in the first place.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`: it did not run
   */
  doubleDelete<T>(
    keys: string | readonly string[],
    write: () => Promise<T>,
    options: { delay: Duration } & Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<T>;

  /**
   * Runs `write`, then deletes every value whose key begins with the prefix; also when `write` failed, as it may have
   * been carried out.
   */
  flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T>;
}
