import type { Duration } from '../options/cache-durations.js';

/** What a loader gets, and can say beside its result. */
export interface LoaderContext {
  /** Aborted when the loader has run for `loaderTimeout`. */
  readonly signal: AbortSignal;
  /** The value that is kept beyond its `ttl`, if there is one. */
  readonly stale: unknown;
  /** Does not store what this loader returns. */
  skip(): void;
  /** Stores it for another time than the options say; 0 does not store it. */
  setTtl(ttl: Duration): void;
  /**
   * Adds tags to those of the options, in the same namespace. One that was invalidated since the loader began keeps the
   * result from being stored.
   */
  setTags(tags: readonly string[]): void;
}

/** Makes the value of a key where the cache has none. */
export type Loader<T> = (context: LoaderContext) => T | Promise<T>;

/** Answers the values in the order of the keys, or by key; what is missing counts as `null`. */
export type BatchLoader<T> = (
  keys: readonly string[],
  context: LoaderContext,
) => Promise<readonly T[] | ReadonlyMap<string, T>>;
