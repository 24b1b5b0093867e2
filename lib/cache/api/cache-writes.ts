import type { CacheEntryOptions } from '../options/cache-options.js';
import type { Duration, EndlessDuration } from '../options/cache-durations.js';
import type { CacheReads } from './cache-reads.js';

/** What `set` takes. */
export type SetOptions = Pick<CacheEntryOptions, 'ttl' | 'jitter' | 'nullTtl' | 'staleTtl' | 'tags' | 'onRedisError'>;

/** What `incr` and `decr` take. */
export interface CountOptions {
  /** How long a number lives that this begins, from then on; `Infinity` for one that never ends by itself. */
  ttl: EndlessDuration;
}

/** What is counted by, if not by 1, and the options. */
export type CountArguments = [options: CountOptions] | [by: number | undefined, options: CountOptions];

/** What a soft expiry takes. */
export interface SoftExpiryOptions extends Pick<CacheEntryOptions, 'barrier' | 'onRedisError'> {
  /** What is there is kept, and stale at once. */
  soft: true;
}

/** Stores values by hand, and counts. */
export interface CacheWrites extends CacheReads {
  /**
   * Stores the value, whatever was there. A load that is under way does not overwrite it. While a `mutate` or a
   * barrier of the key stands, nothing is stored.
   *
   * With `onRedisError: 'open'`, and Redis away, nothing is stored, and what is there is deleted as soon as Redis is
   * back.
   */
  set(key: string, value: unknown, options?: SetOptions): Promise<void>;

  /** Stores the value if there is none; `false` when there was one, or a `mutate` or a barrier of the key stands. */
  setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean>;

  /** As `set`, for many keys. */
  mset(values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>, options?: SetOptions): Promise<void>;

  /**
   * Adds `by` (default 1) to the number under the key, and answers the sum. A number begins at 0, and lives for `ttl`
   * from then on, however often it is counted.
   *
   * @throws CacheConfigError without a `ttl`: a number that ends must not do so by surprise
   * @throws CacheConfigError when what is there is no whole number that `set` or `incr` stored
   * @throws CacheBackendError when Redis fails
   */
  incr(key: string, options: CountOptions): Promise<number>;
  incr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  incr(key: string, ...given: CountArguments): Promise<number>;

  /** As `incr`, the other way. */
  decr(key: string, options: CountOptions): Promise<number>;
  decr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  decr(key: string, ...given: CountArguments): Promise<number>;

  /**
   * The value as `get` answers it, which is deleted in the same step: of all who ask for it, one gets it. Loads that
   * began before store nothing. It may be lost where the answer of Redis is: `undefined`, or an error, with
   * `onRedisError: 'throw'`, says so, and the value is deleted all the same.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  getDel<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined>;

  /**
   * Lets the value live for so long from now; `false` when there is none. A first level that reads it after that goes
   * by the `ttl` that it was stored with, and may keep it for up to `l1.ttl` longer than Redis.
   *
   * @throws CacheBackendError when Redis fails
   */
  expire(key: string, ttl: Duration): Promise<boolean>;
  /**
   * Makes the values stale at once, as if their `ttl` had ended: a read loads, and falls back on them for its
   * `staleTtl`, as long as Redis keeps them. Loads that began before store nothing. Answers how many values there were;
   * numbers that are counted are deleted.
   *
   * Where Redis does not confirm it, they are deleted as soon as it is back, and not read by this process until then.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  expire(keys: string | readonly string[], options: SoftExpiryOptions): Promise<number>;
}
