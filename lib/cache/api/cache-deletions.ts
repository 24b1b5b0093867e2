import type { CacheEntryOptions } from '../options/cache-options.js';
import type { Duration } from '../../options/duration.js';

/** Options of `invalidate`, `mutate` and `del`. */
export type InvalidateOptions = Pick<CacheEntryOptions, 'barrier' | 'onRedisError'>;

/** Options of `deleteByPrefix` and `deleteByPattern`. */
export interface DeleteMatchingOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How many keys to scan in one step; Redis serves other clients between the steps. @default 100 */
  batch?: number;
}

/** Deletes values, and keeps loads that began before from storing. */
export interface CacheDeletions {
  /**
   * As `invalidate`, and returns how many values Redis had, stale ones and those invalidated by a tag included. Does not
   * count deletions that Redis did not confirm.
   */
  del(keys: string | readonly string[], options?: InvalidateOptions): Promise<number>;

  /**
   * Deletes the values, and takes the load lease of every load that began before, in any process, so that it stores
   * nothing. Call it after the write has been committed.
   *
   * With `onRedisError: 'open'` it resolves within `commandTimeout` also when Redis does not answer; it is then repeated
   * until Redis confirms it, and this process does not read the keys from Redis meanwhile.
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
   * Deletes every value with one of the tags, and keeps loads that began before from storing one. Each namespace has its
   * own tags.
   */
  deleteByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * As `deleteByTag`, but keeps the values, stale at once: a read loads, and falls back on the old value for its
   * `staleTtl`, counted from the last expiry of the tag, as long as Redis keeps it.
   */
  expireByTag(tags: string | readonly string[], options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<void>;

  /**
   * Deletes every value whose key begins with the prefix, and returns how many there were. Scans all keys of the server,
   * in batches; loads that began before it store nothing.
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
