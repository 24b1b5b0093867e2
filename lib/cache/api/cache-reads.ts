import type { CacheKeyInfo } from './cache-key-info.js';
import type { BatchLoader, Loader } from '../load/cache-loader.js';
import type { CacheEntryOptions, ReadOptions } from '../options/cache-options.js';

/** Reads and loads the values under keys that begin with one prefix. */
export interface CacheReads {
  /** The prefix of all keys. */
  readonly keyPrefix: string;

  /**
   * Joins parts to a key: `key('shop', 'product', 7)` is `shop:product:7`. Separators inside a part are escaped, so
   * that different lists of parts make different keys.
   *
   * @throws CacheKeyError for a part that is undefined, null, an object, NaN or an empty string
   */
  key(...parts: readonly (string | number | bigint | boolean)[]): string;

  /**
   * Returns the value of the key, or loads and stores it if there is none. For each key one loader at a time runs, over
   * all processes; its result is not stored if the key was invalidated meanwhile.
   *
   * Callers of one process that ask for a key at the same time get the same object: treat it as read-only.
   *
   * @throws `signal.reason` once the signal is aborted; the load goes on
   * @throws what the loader throws, unless there is a stale value to fall back on
   * @throws CacheTimeoutError when the loader takes longer than `loaderTimeout`
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  getOrSet<T>(key: string, loader: Loader<T>, options?: ReadOptions): Promise<T>;

  /**
   * Returns the values of the keys, in their order. Calls the loader once, for the keys that have no value and that no
   * other call is loading.
   *
   * @throws what `getOrSet` throws
   */
  getOrSetMany<T>(keys: readonly string[], loader: BatchLoader<T>, options?: ReadOptions): Promise<T[]>;

  /**
   * Returns the stored value without loading it: `undefined` when there is none, or when Redis fails and `onRedisError`
   * is 'open'.
   */
  get<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined>;

  /** As `get`, for many keys, in their order. */
  mget<T = unknown>(
    keys: readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<(T | undefined)[]>;

  /** Milliseconds until the value is removed; `null` when there is none. @throws CacheBackendError when Redis fails */
  ttl(key: string): Promise<number | null>;

  /** Whether `get` would find a value; it may find `undefined`. @throws CacheBackendError when Redis fails */
  has(key: string): Promise<boolean>;

  /**
   * What the store keeps under the key, without reading the value; `null` when there is no value, and no load or write
   * is under way. One round trip, two for a value with tags. Does not look into first levels.
   *
   * @throws CacheBackendError when Redis fails
   */
  inspect(key: string): Promise<CacheKeyInfo | null>;
}
