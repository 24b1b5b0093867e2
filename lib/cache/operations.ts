import type { Duration, EndlessDuration } from '../options/checks.js';
import type { BatchLoader, Loader } from './load/cache-loader.js';
import type { CacheEntryOptions, ReadOptions } from './options/cache-options.js';
import type { CachePipeline } from './pipeline.js';
import type { CacheExpiringSetOperations, CacheSetOperations } from './sets.js';

/** The operations of the cache on keys that begin with one prefix. */
export interface CacheOperations extends CacheWrites, CacheDeletions {
  /** Sets of strings, each of which expires as a whole. */
  readonly sets: CacheSetOperations;
  /** Sets of strings whose members expire one by one. */
  readonly expiringSet: CacheExpiringSetOperations;

  /** The same operations on keys that begin with `name:`, after the prefix of this one. */
  namespace(name: string): CacheOperations;

  /** Gathers operations and sends them together: `await cache.pipeline().get('a').incr('n', { ttl: '1d' }).exec()`. */
  pipeline(): CachePipeline;
}

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

/** The options of `set`. */
export type SetOptions = Pick<CacheEntryOptions, 'ttl' | 'jitter' | 'nullTtl' | 'staleTtl' | 'tags' | 'onRedisError'>;

/** The options of `incr` and `decr`. */
export interface CountOptions {
  /** How long the number is kept, from the call that created it; `Infinity` for a number that does not expire. */
  ttl: EndlessDuration;
}

/** The number to add, by default 1, and the options. */
export type CountArguments = [options: CountOptions] | [by: number | undefined, options: CountOptions];

/** Options of a soft expiry. */
export interface SoftExpiryOptions extends Pick<CacheEntryOptions, 'barrier' | 'onRedisError'> {
  /** Keeps the values, stale at once. */
  soft: true;
}

/** Stores values by hand, and counts. */
export interface CacheWrites extends CacheReads {
  /**
   * Stores the value in place of any other. A load under way does not overwrite it. Stores nothing while a `mutate`
   * runs on the key or a barrier stands.
   *
   * If Redis fails and `onRedisError` is 'open', stores nothing, and deletes the old value as soon as Redis is back.
   */
  set(key: string, value: unknown, options?: SetOptions): Promise<void>;

  /**
   * Stores the value if `get` would find none. `false` if it would find one, or while a `mutate` runs on the key or a
   * barrier stands.
   */
  setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean>;

  /** As `set`, for many keys. */
  mset(values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>, options?: SetOptions): Promise<void>;

  /**
   * Adds `by` (default 1) to the number of the key, and returns the sum. A number begins at 0 and is kept for `ttl`
   * from its first call; later calls do not extend it.
   *
   * @throws CacheConfigError without a `ttl`: give `Infinity` for a number that does not expire
   * @throws CacheConfigError when the value is not a whole number that `set` or `incr` stored
   * @throws CacheBackendError when Redis fails
   */
  incr(key: string, options: CountOptions): Promise<number>;
  /** As `incr(key, options)`, by a number other than 1. */
  incr(key: string, by: number | undefined, options: CountOptions): Promise<number>;

  /** As `incr`, but subtracts. */
  decr(key: string, options: CountOptions): Promise<number>;
  /** As `decr(key, options)`, by a number other than 1. */
  decr(key: string, by: number | undefined, options: CountOptions): Promise<number>;

  /**
   * Returns the value as `get` does, and deletes it in the same step: of several concurrent calls, one gets it. Loads
   * that began before store nothing. When the reply of Redis is lost, so is the value: the call returns `undefined`, or
   * rejects with `onRedisError: 'throw'`, and the value is deleted.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  getDel<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined>;

  /**
   * Makes the value expire `ttl` from now; `false` when there is none. A first level that reads the value later uses
   * the `ttl` of its `set` or load, and may keep it for up to `l1.ttl` longer than Redis.
   *
   * @throws CacheBackendError when Redis fails
   */
  expire(key: string, ttl: Duration): Promise<boolean>;
  /**
   * Makes the values stale at once, as if their `ttl` had ended: a read loads, and falls back on them for their
   * `staleTtl`, as long as Redis keeps them. Loads that began before store nothing. Returns the number of values.
   * Deletes numbers of `incr`, which are never stale.
   *
   * If Redis does not confirm it, the process deletes the values as soon as Redis is back, and does not read them until
   * then.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  expire(keys: string | readonly string[], options: SoftExpiryOptions): Promise<number>;
}

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

/** What the store keeps under a key of the cache. */
export interface CacheKeyInfo {
  /**
   * - `fresh`: reads return the value.
   * - `stale`: its `ttl` has ended, or it was expired softly. Reads load a new one; they return this one meanwhile if
   *   their `staleTtl` allows it.
   * - `invalidated`: one of its tags was invalidated since it was loaded. No read returns it, although it is stored.
   * - `unreadable`: it has no envelope of this library's version. No read returns it.
   * - `absent`: there is no value, but a load or a write is under way.
   */
  readonly state: 'fresh' | 'stale' | 'invalidated' | 'unreadable' | 'absent';
  /** Milliseconds for which it stays fresh; 0 unless it is. `Infinity` if it never expires. */
  readonly freshFor: number;
  /** Milliseconds until the store removes it; 0 if there is none, `Infinity` if it never expires. */
  readonly keptFor: number;
  /** Bytes as stored, with the envelope and after compression; 0 if there is none. */
  readonly bytes: number;
  /** Its tags, each with the prefix of the namespace in which the value was stored. */
  readonly tags: readonly string[];
  /** Those of its tags that were invalidated since it was loaded, or that the store does not remember. */
  readonly invalidatedTags: readonly string[];
  /** Milliseconds left of the load lease, which the loading process renews; absent while nobody loads the value. */
  readonly loading?: number;
  /** Whether a write is under way (`mutate`, or a barrier of an invalidation): loads store nothing until it ends. */
  readonly barrier: boolean;
}
