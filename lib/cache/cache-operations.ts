import { BatchLoad } from './batch-load.js';
import type { CacheEngine } from './cache-engine.js';
import { CacheBackendError, CacheConfigError } from './cache-errors.js';
import { cacheKey, cacheKeys, composedKey } from './cache-keys.js';
import type { BatchLoader, Loader } from './cache-loader.js';
import type { CacheEntryOptions } from './cache-options.js';
import { CachePipeline } from './cache-pipeline.js';
import { LONGEST_DELAY, milliseconds, refused, type Duration } from './duration.js';
import { countable, emptyStamp } from './envelope.js';
import { entrySettings, type EntrySettings } from './entry-settings.js';
import { jittered, tagMemory } from './leased-load.js';
import { decode, hasCurrentTags, isFresh } from './lookup.js';
import { CacheExpiringSetOperations, CacheSetOperations } from './set-operations.js';
import { keyDeletion } from './unconfirmed.js';

/** What `invalidate`, `mutate` and the deletions take. */
export type InvalidateOptions = Pick<CacheEntryOptions, 'barrier' | 'onRedisError'>;

/** What `set` takes. */
export type SetOptions = Pick<CacheEntryOptions, 'ttl' | 'jitter' | 'nullTtl' | 'tags' | 'onRedisError'>;

/** Options of `deleteByPrefix` and `deleteByPattern`. */
export interface DeleteMatchingOptions extends Pick<CacheEntryOptions, 'onRedisError'> {
  /** How many keys to look at in one step; other clients are served between the steps. @default 100 */
  batch?: number;
}

/** Keys of one call that are read or written at once. */
const MOST_AT_ONCE = 512;
const DEFAULT_BATCH = 100;

/** The operations of the cache on keys that begin with one prefix. */
export class CacheOperations {
  readonly sets: CacheSetOperations;
  readonly expiringSet: CacheExpiringSetOperations;

  /** @internal */
  constructor(
    /** @internal */
    protected readonly engineOf: () => CacheEngine,
    /** What every key begins with here. */
    readonly keyPrefix: string,
  ) {
    this.sets = new CacheSetOperations(engineOf, keyPrefix);
    this.expiringSet = new CacheExpiringSetOperations(engineOf, keyPrefix);
  }

  /**
   * A key of several parts: `key('shop', 'product', 7)` is `shop:product:7`. Separators inside a part are escaped, so that no
   * part can forge another key.
   *
   * @throws CacheKeyError for a part that is undefined, null, an object, NaN or an empty string
   */
  key(...parts: readonly (string | number | bigint | boolean)[]): string {
    return composedKey(parts);
  }

  /** The same operations on keys that begin with `name:` behind what they begin with here. */
  namespace(name: string): CacheOperations {
    return new CacheOperations(this.engineOf, `${this.keyPrefix}${cacheKey(name)}:`);
  }

  /**
   * The value under the key; where there is none, what the loader returns, which is then stored. One loader at a time runs for
   * a key, over all processes, and what it returns is not stored if the key was invalidated meanwhile.
   *
   * Callers of one process that ask for a key at the same time get the same object: treat it as read-only.
   *
   * @throws what the loader throws, unless there is a stale value to fall back on
   * @throws CacheTimeoutError when the loader takes longer than `loaderTimeout`
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  getOrSet<T>(key: string, loader: Loader<T>, options?: CacheEntryOptions): Promise<T> {
    try {
      const engine = this.engineOf();
      const settings = entrySettings(options, engine.settings.entries);
      return engine.fetch(this.keyPrefix + cacheKey(key), loader, settings) as Promise<T>;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * The values of the keys, in their order. The loader is called once, with the keys that have no value and that nobody else
   * is loading.
   *
   * @throws what `getOrSet` throws
   */
  async getOrSetMany<T>(keys: readonly string[], loader: BatchLoader<T>, options?: CacheEntryOptions): Promise<T[]> {
    const engine = this.engineOf();
    const settings = entrySettings(options, engine.settings.entries);
    const unique = cacheKeys(keys);
    const batch = new BatchLoad(unique, loader, engine.loads.scopes, this.keyPrefix);
    const reads = unique.map(async (key) => {
      try {
        return await engine.fetch(this.keyPrefix + key, batch.loaderOf(key), settings, batch.rendezvousOf(key));
      } finally {
        batch.decide(key);
      }
    });
    const values = await allSettled(reads);
    const byKey = new Map(unique.map((key, index) => [key, values[index]]));
    return keys.map((key) => byKey.get(key) as T);
  }

  /** The value as it is stored, `undefined` when there is none, or Redis fails and `onRedisError` is 'open'. Loads nothing. */
  async get<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const settings = entrySettings(options, engine.settings.entries);
    const kept = settings.strong ? undefined : engine.firstLevel?.get(full);
    if (kept) {
      engine.counters.firstLevelHits += 1;
      return kept.value as T;
    }
    if (engine.unconfirmed.coversKey(full)) return undefined;
    try {
      const data = await engine.calls.run('read', full, () => engine.calls.store.read(full));
      const found = decode(engine, full, data);
      if (!found || !isFresh(found) || !(await hasCurrentTags(engine, full, found, []))) {
        engine.counters.misses += 1;
        return undefined;
      }
      engine.counters.secondLevelHits += 1;
      return found.value as T;
    } catch (error) {
      return this.withoutRedis(error, settings);
    }
  }

  /** As `get`, for many keys, in their order. */
  async mget<T = unknown>(
    keys: readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<(T | undefined)[]> {
    return inBatches(keys, (key) => this.get<T>(key, options));
  }

  /**
   * Stores the value, whatever was there. A load that is under way does not overwrite it.
   *
   * With `onRedisError: 'open'`, and Redis away, nothing is stored, and what is there is deleted as soon as Redis is back.
   */
  async set(key: string, value: unknown, options?: SetOptions): Promise<void> {
    await this.write(key, value, options, false);
  }

  /** Stores the value if there is none; `false` when there was one. */
  async setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean> {
    return this.write(key, value, options, true);
  }

  /** As `set`, for many keys. */
  async mset(
    values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>,
    options?: SetOptions,
  ): Promise<void> {
    const entries = values instanceof Map ? [...values] : Object.entries(values);
    await inBatches(entries, ([key, value]) => this.set(key as string, value, options));
  }

  /**
   * Adds to the number under the key, and answers the sum. A number begins at 0, and lives for `ttl` from then on.
   *
   * @throws CacheConfigError when what is there is no whole number that `set` or `incr` stored
   * @throws CacheBackendError when Redis fails
   */
  async incr(key: string, by = 1, options?: Pick<CacheEntryOptions, 'ttl'>): Promise<number> {
    const engine = this.engineOf();
    if (!Number.isSafeInteger(by)) throw refused('by', by, 'a whole number');
    const full = this.keyPrefix + cacheKey(key);
    const { ttl } = entrySettings(options, engine.settings.entries);
    engine.invalidations.forget(full);
    try {
      return await engine.calls.run('increment', full, () => engine.calls.store.increment({ key: full, by, ttl }));
    } catch (error) {
      if (!/not an integer|overflow|out of range/.test(String(error))) throw error;
      throw new CacheConfigError(`"${full}" is no whole number that incr can add ${by} to: ${String(error)}`, [full]);
    } finally {
      engine.invalidations.forget(full);
    }
  }

  /** As `incr`, the other way. */
  async decr(key: string, by = 1, options?: Pick<CacheEntryOptions, 'ttl'>): Promise<number> {
    return this.incr(key, -by, options);
  }

  /** The same as `invalidate`. */
  async del(keys: string | readonly string[], options?: InvalidateOptions): Promise<void> {
    await this.invalidate(keys, options);
  }

  /**
   * Lets the value live for so long from now; `false` when there is none. A first level that reads it after that goes by the `ttl` that it
   * was stored with, and may keep it for up to `l1.ttl` longer than Redis.
   *
   * @throws CacheBackendError when Redis fails
   */
  async expire(key: string, ttl: Duration): Promise<boolean> {
    const { calls, invalidations } = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const request = { key: full, ttl: milliseconds('ttl', ttl, 1) };
    const found = await calls.run('expire', full, () => calls.store.expire(request));
    invalidations.forget(full);
    return found;
  }

  /** Milliseconds that the value is kept; `null` when there is none. @throws CacheBackendError when Redis fails */
  async ttl(key: string): Promise<number | null> {
    const { calls } = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    return calls.run('ttl', full, () => calls.store.ttl(full));
  }

  /** Whether `get` would find a value, which may be `undefined` itself. @throws CacheBackendError when Redis fails */
  async has(key: string): Promise<boolean> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    if (engine.unconfirmed.coversKey(full)) return false;
    const data = await engine.calls.run('read', full, () => engine.calls.store.read(full));
    const found = decode(engine, full, data);
    return found !== undefined && isFresh(found) && hasCurrentTags(engine, full, found, []);
  }

  /**
   * Deletes the values, and fences whatever loads them, in any process: what it read before is not stored. Call it after
   * the write has been committed.
   *
   * With `onRedisError: 'open'` it resolves within `commandTimeout` also when Redis is away; it is then repeated until Redis confirms it,
   * and this process does not read the keys from Redis meanwhile.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'; it is repeated nevertheless
   */
  async invalidate(keys: string | readonly string[], options?: InvalidateOptions): Promise<void> {
    const engine = this.engineOf();
    await engine.invalidations.invalidate(this.full(keys), entrySettings(options, engine.settings.entries));
  }

  /**
   * Runs `write` while nothing is stored under the keys, and deletes them before and after. Should the process die between the
   * commit of the write and its end here, nothing old is left, and nothing is stored until the barrier ends (10 s), which is renewed
   * while `write` runs.
   *
   * @throws what `write` throws; the keys are deleted all the same
   * @throws CacheBackendError when Redis fails before `write`, and `onRedisError` is 'throw': it did not run
   */
  async mutate<T>(keys: string | readonly string[], write: () => Promise<T>, options?: InvalidateOptions): Promise<T> {
    const engine = this.engineOf();
    return engine.invalidations.mutate(this.full(keys), write, entrySettings(options, engine.settings.entries));
  }

  /** Deletes every value that bears one of the tags, and does not let loads that began before store any. Tags have no prefix. */
  async deleteByTag(
    tags: string | readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<void> {
    const engine = this.engineOf();
    const { failOpen } = entrySettings(options, engine.settings.entries);
    await engine.invalidations.deleteByTag(cacheKeys(tags), failOpen);
  }

  /**
   * Deletes every value whose key begins with the prefix, and answers how many there were. It looks at every key of the server, a few
   * at a time; loads that began before it store nothing.
   */
  async deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number> {
    if (typeof prefix !== 'string') throw refused('prefix', prefix, "a string; '' stands for all keys");
    return this.deleteMatching({ prefix: this.keyPrefix + prefix }, options);
  }

  /** As `deleteByPrefix`, for keys that match a glob of Redis: `*`, `?`, `[abc]`, and `\` before a character that means itself. */
  async deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number> {
    const literal = this.keyPrefix.replace(/[\\*?[\]]/g, '\\$&');
    return this.deleteMatching({ pattern: literal + cacheKey(pattern) }, options);
  }

  /**
   * Deletes the keys before and after `write`, and once more `delay` after that. The last deletion is kept in Redis, and carried out by
   * another process should this one die; so a loader that read from a replica which lags behind by less than `delay` leaves nothing old.
   *
   * Second choice: readers see what they have stored meanwhile, and load twice. `mutate`, and `invalidate` with a `barrier` as
   * long as the replica lags, let nothing old be stored in the first place.
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
    return engine.invalidations.doubleDelete(this.full(keys), write, wait, failOpen);
  }

  /** Runs `write`, then deletes every value whose key begins with the prefix; also when `write` failed, as it may have been carried out. */
  async flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T> {
    try {
      return await write();
    } finally {
      await this.deleteByPrefix(prefix, options);
    }
  }

  /** Gathers operations that are sent together: `const [a, n] = await cache.pipeline().get('a').incr('n').exec()`. */
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
    return engine.invalidations.deleteMatching({ match, batch }, failOpen);
  }

  /** @internal */
  protected full(keys: string | readonly string[]): readonly string[] {
    return cacheKeys(keys).map((key) => this.keyPrefix + key);
  }

  private async write(
    key: string,
    value: unknown,
    options: SetOptions | undefined,
    ifAbsent: boolean,
  ): Promise<boolean> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const settings = entrySettings(options, engine.settings.entries);
    const most = value === null || value === undefined ? Math.min(settings.ttl, settings.nullTtl) : settings.ttl;
    const ttl = jittered(most, settings.jitter);
    engine.invalidations.forget(full);
    try {
      if (ttl === 0) {
        if (ifAbsent) return false;
        await engine.invalidations.invalidate([full], settings);
        return true;
      }
      const data = await this.seal(full, value, ttl, settings);
      const request = { key: full, data, ttl, ifAbsent };
      // What is stored after it was given up may be older than what was written since.
      const late = (stored: boolean) => stored && engine.invalidations.deleteLater(full);
      const before = engine.unconfirmed.find(keyDeletion(full));
      const stored = await engine.calls.run('set', full, () => engine.calls.store.set(request), late);
      if (stored) engine.unconfirmed.confirmed(before);
      return stored;
    } catch (error) {
      if (error instanceof CacheBackendError && !ifAbsent) engine.invalidations.deleteLater(full);
      return this.withoutRedis(error, settings) ?? false;
    } finally {
      engine.invalidations.forget(full);
    }
  }

  private async seal(key: string, value: unknown, ttl: number, settings: EntrySettings) {
    const engine = this.engineOf();
    const { tags } = settings;
    if (value instanceof Promise) throw refused('value', value, 'what the promise resolves to: await it');
    if (tags.length === 0 && countable(value)) return String(value);
    const stamp = emptyStamp();
    if (tags.length > 0) {
      const versions = await engine.beginTags(key, tags, tagMemory(settings));
      for (const [index, tag] of tags.entries()) stamp[tag] = versions[index]?.version ?? 0;
    }
    const mark = {
      expiresAt: Date.now() + ttl,
      keptStale: false,
      loadTime: undefined,
      tags: tags.length > 0 ? stamp : undefined,
    };
    try {
      return await engine.envelopes.seal(value, mark);
    } catch (error) {
      throw new CacheConfigError(`The value of "${key}" cannot be stored: ${String(error)}`, [key]);
    }
  }

  private withoutRedis(error: unknown, { failOpen }: EntrySettings): undefined {
    if (!(error instanceof CacheBackendError) || !failOpen) throw error;
    this.engineOf().counters.redisErrors += 1;
    return undefined;
  }
}

/** So many at once that each is answered in time. Rejects with the first error, once all have settled. */
async function inBatches<T, R>(all: readonly T[], call: (each: T) => Promise<R>): Promise<R[]> {
  const results: PromiseSettledResult<R>[] = [];
  for (let first = 0; first < all.length; first += MOST_AT_ONCE) {
    results.push(...(await Promise.allSettled(all.slice(first, first + MOST_AT_ONCE).map(call))));
  }
  return valuesOf(results);
}

/** Rejects with the first error, once all have settled: none of them goes on unseen. */
async function allSettled<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  return valuesOf(await Promise.allSettled(promises));
}

function valuesOf<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
