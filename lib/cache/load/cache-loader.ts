import type { Duration } from '../../options/checks.js';

/** The argument of a loader. */
export interface LoaderContext {
  /** Aborted when the loader has run for `loaderTimeout`, counted from its call. */
  readonly signal: AbortSignal;
  /** The stale value, if there is one. */
  readonly stale: unknown;
  /** The result of this loader is not stored. */
  skip(): void;
  /** Replaces the `ttl` of the options; 0 keeps the value from being stored. */
  setTtl(ttl: Duration): void;
  /**
   * Adds tags to those of the options, in the same namespace. The value is not stored if one of them was invalidated
   * since the loader started.
   */
  setTags(tags: readonly string[]): void;
}

/** Fetches the value of a key that the cache does not have. */
export type Loader<T> = (context: LoaderContext) => T | Promise<T>;

/** Returns the values in the order of the keys, or a Map by key; a key without a value gets `null`. */
export type BatchLoader<T> = (
  keys: readonly string[],
  context: LoaderContext,
) => Promise<readonly T[] | ReadonlyMap<string, T>>;
