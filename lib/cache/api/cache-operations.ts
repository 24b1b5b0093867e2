import type { CacheEngine } from '../cache-engine.js';
import { cacheKey, keyBeginning } from './cache-keys.js';
import type { CacheEntryOptions } from '../options/cache-options.js';
import { CachePipeline } from './cache-pipeline.js';
import { CacheWrites } from './cache-writes.js';
import { LONGEST_DELAY, milliseconds, refused, type Duration } from '../options/cache-durations.js';
import { entrySettings } from '../options/entry-settings.js';
import { CacheExpiringSetOperations, CacheSetOperations } from './set-operations.js';

/** What `invalidate`, `mutate` and the deletions take. */
export type InvalidateOptions = Pick<CacheEntryOptions, 'barrier' | 'onRedisError'>;

/** Options of `deleteByPrefix` and `deleteByPattern`. */
export interface DeleteMatchingOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How many keys to look at in one step; other clients are served between the steps. @default 100 */
  batch?: number;
}

const DEFAULT_BATCH = 100;

/** The operations of the cache on keys that begin with one prefix. */
export class CacheOperations extends CacheWrites {
  readonly sets: CacheSetOperations;
  readonly expiringSet: CacheExpiringSetOperations;

  /** @internal */
  constructor(engineOf: () => CacheEngine, keyPrefix: string) {
    super(engineOf, keyPrefix);
    this.sets = new CacheSetOperations(engineOf, keyPrefix);
    this.expiringSet = new CacheExpiringSetOperations(engineOf, keyPrefix);
  }

  /** The same operations on keys that begin with `name:` behind what they begin with here. */
  namespace(name: string): CacheOperations {
    return new CacheOperations(this.engineOf, `${this.keyPrefix}${cacheKey(name)}:`);
  }

  /**
   * As `invalidate`, and answers how many values Redis had: also of those that were stale, or ended by a tag. What was
   * deleted without its confirmation is not counted.
   */
  async del(keys: string | readonly string[], options?: InvalidateOptions): Promise<number> {
    const engine = this.engineOf();
    return engine.invalidations.invalidate(this.full(keys), entrySettings(options, engine.settings.entries));
  }

  /**
   * Deletes the values, and fences whatever loads them, in any process: what it read before is not stored. Call it
   * after the write has been committed.
   *
   * With `onRedisError: 'open'` it resolves within `commandTimeout` also when Redis is away; it is then repeated until
   * Redis confirms it, and this process does not read the keys from Redis meanwhile.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'; it is repeated nevertheless
   */
  async invalidate(keys: string | readonly string[], options?: InvalidateOptions): Promise<void> {
    await this.del(keys, options);
  }

  /**
   * Runs `write` while nothing is stored under the keys, and deletes them before and after. Should the process die
   * between the commit of the write and its end here, nothing old is left, and nothing is stored until the barrier ends
   * (10 s), which is renewed while `write` runs.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`, and `onRedisError` is 'throw': it did not run
   */
  async mutate<T>(keys: string | readonly string[], write: () => Promise<T>, options?: InvalidateOptions): Promise<T> {
    const engine = this.engineOf();
    return engine.mutations.run(this.full(keys), write, entrySettings(options, engine.settings.entries));
  }

  /**
   * Deletes every value that bears one of the tags, and does not let loads that began before store any. The tags of a
   * namespace are its own.
   */
  async deleteByTag(
    tags: string | readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<void> {
    const engine = this.engineOf();
    const { failOpen } = entrySettings(options, engine.settings.entries);
    await engine.invalidations.deleteByTag(this.full(tags), failOpen);
  }

  /**
   * As `deleteByTag`, but what bears one of the tags is kept, and stale at once: a read loads, and falls back on it for
   * its `staleTtl`, from the last expiry of the tag on and as long as Redis keeps it.
   */
  async expireByTag(
    tags: string | readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<void> {
    const engine = this.engineOf();
    const { failOpen } = entrySettings(options, engine.settings.entries);
    await engine.invalidations.deleteByTag(this.full(tags), failOpen, true);
  }

  /**
   * Deletes every value whose key begins with the prefix, and answers how many there were. It looks at every key of the
   * server, a few at a time; loads that began before it store nothing.
   */
  async deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number> {
    if (typeof prefix !== 'string') throw refused('prefix', prefix, "a string; '' stands for all keys");
    return this.deleteMatching({ prefix: this.keyPrefix + keyBeginning(prefix) }, options);
  }

  /**
   * As `deleteByPrefix`, for keys that match a glob of Redis: `*`, `?`, `[abc]`, and `\` before a character that means
   * itself.
   */
  async deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number> {
    const literal = this.keyPrefix.replace(/[\\*?[\]]/g, '\\$&');
    return this.deleteMatching({ pattern: literal + cacheKey(pattern) }, options);
  }

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
  async doubleDelete<T>(
    keys: string | readonly string[],
    write: () => Promise<T>,
    { delay, ...options }: { delay: Duration } & Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<T> {
    const engine = this.engineOf();
    const wait = milliseconds('delay', delay, 1, LONGEST_DELAY);
    const { failOpen } = entrySettings(options, engine.settings.entries);
    return engine.doubleDeletions.run(this.full(keys), write, wait, failOpen);
  }

  /**
   * Runs `write`, then deletes every value whose key begins with the prefix; also when `write` failed, as it may have
   * been carried out.
   */
  async flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T> {
    try {
      return await write();
    } finally {
      await this.deleteByPrefix(prefix, options);
    }
  }

  /** Gathers operations that are sent together: `await cache.pipeline().get('a').incr('n', { ttl: '1d' }).exec()`. */
  pipeline(): CachePipeline {
    return new CachePipeline(this);
  }

  private async deleteMatching(
    match: { prefix: string } | { pattern: string },
    { batch = DEFAULT_BATCH, ...options }: DeleteMatchingOptions = {},
  ): Promise<number> {
    const engine = this.engineOf();
    if (!Number.isSafeInteger(batch) || batch < 1) throw refused('batch', batch, 'a whole number from 1 on');
    const { failOpen } = entrySettings(options, engine.settings.entries);
    return engine.matchingDeletions.delete({ match, batch }, failOpen);
  }
}
