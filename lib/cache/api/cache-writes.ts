import type { CacheEntryOptions } from '../options/cache-options.js';
import type { Duration, EndlessDuration } from '../../options/duration.js';
import type { CacheReads } from './cache-reads.js';

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
   * Stores the value if there is none. `false` if there is one, or while a `mutate` runs on the key or a barrier
   * stands.
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
