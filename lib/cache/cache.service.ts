import { Injectable, type OnModuleInit } from '@nestjs/common';
import { abandonable } from './api/abandonable.js';
import type { DeleteMatchingOptions, InvalidateOptions } from './api/cache-deletions.js';
import { cacheKey, composedKey } from './api/cache-keys.js';
import type { CacheOperations } from './api/cache-operations.js';
import { CachePipeline } from './api/cache-pipeline.js';
import type { CountArguments, CountOptions, SetOptions, SoftExpiryOptions } from './api/cache-writes.js';
import { KeyScope } from './api/key-scope.js';
import { CacheExpiringSetOperations, CacheSetOperations } from './api/set-operations.js';
import { addToNumber, expireValue, storeValue, takeValue } from './api/value-changes.js';
import { loadValues } from './api/value-loads.js';
import { getValue, getValues, hasValue, remainingTime } from './api/value-reads.js';
import { BloomFilter, type BloomFilterOptions } from './bloom/bloom-filter.js';
import type { CacheRuntime } from './cache-runtime.js';
import type { BatchLoader, Loader } from './load/cache-loader.js';
import type { Duration } from '../options/duration.js';
import { cacheOption } from '../options/option-checks.js';
import type { CacheEntryOptions, ReadOptions } from './options/cache-options.js';
import { withTagsOf } from './options/entry-settings.js';
import { inBatches, valuesOf } from './store/batches.js';
import type { CacheStats } from './store/cache-stats.js';

type Keys = string | readonly string[];
type OnRedisError = Pick<CacheEntryOptions, 'onRedisError'>;

const DEFAULT_BATCH = 100;

/**
 * Cached values: read through, invalidated, and kept in Redis and, where the module says so, in the memory of the
 * process.
 */
@Injectable()
export class CacheService implements CacheOperations, OnModuleInit {
  readonly sets: CacheSetOperations;
  readonly expiringSet: CacheExpiringSetOperations;
  private readonly scope: KeyScope;

  /** @internal */
  constructor(
    private readonly runtime: CacheRuntime,
    readonly keyPrefix = '',
  ) {
    this.scope = new KeyScope(runtime, keyPrefix);
    this.sets = new CacheSetOperations(this.scope);
    this.expiringSet = new CacheExpiringSetOperations(this.scope);
  }

  namespace(name: string): CacheOperations {
    return new CacheService(this.runtime, `${this.scope.key(name)}:`);
  }

  key(...parts: readonly (string | number | bigint | boolean)[]): string {
    return composedKey(parts);
  }

  getOrSet<T>(key: string, loader: Loader<T>, options?: ReadOptions): Promise<T> {
    try {
      const { engine } = this.scope;
      const settings = this.scope.readSettings(options);
      const full = this.scope.key(key);
      if (!options?.signal) return engine.reads.read(full, loader, settings) as Promise<T>;
      return abandonable(options.signal, () => engine.reads.read(full, loader, settings) as Promise<T>);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async getOrSetMany<T>(keys: readonly string[], loader: BatchLoader<T>, options?: ReadOptions): Promise<T[]> {
    const { engine } = this.scope;
    const settings = this.scope.readSettings(options);
    if (!options?.signal) return loadValues(engine, this.keyPrefix, keys, loader, settings);
    return abandonable(options.signal, () => loadValues(engine, this.keyPrefix, keys, loader, settings));
  }

  async get<T = unknown>(key: string, options?: OnRedisError): Promise<T | undefined> {
    return getValue<T>(this.scope.engine, this.scope.key(key), this.scope.settings(options));
  }

  async mget<T = unknown>(keys: readonly string[], options?: OnRedisError): Promise<(T | undefined)[]> {
    const full = keys.map((key) => this.scope.key(key));
    return getValues<T>(this.scope.engine, full, this.scope.settings(options));
  }

  async ttl(key: string): Promise<number | null> {
    return remainingTime(this.scope.engine, this.scope.key(key));
  }

  async has(key: string): Promise<boolean> {
    return hasValue(this.scope.engine, this.scope.key(key));
  }

  async set(key: string, value: unknown, options?: SetOptions): Promise<void> {
    await this.store(key, value, options, false);
  }

  async setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean> {
    return this.store(key, value, options, true);
  }

  async mset(
    values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>,
    options?: SetOptions,
  ): Promise<void> {
    const entries: [string, unknown][] = values instanceof Map ? [...values] : Object.entries(values);
    valuesOf(await inBatches(entries, ([key, value], go) => this.store(key, value, options, false, go)));
  }

  async incr(key: string, options: CountOptions): Promise<number>;
  async incr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  async incr(key: string, ...given: CountArguments): Promise<number> {
    return this.count(key, 1, given);
  }

  async decr(key: string, options: CountOptions): Promise<number>;
  async decr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  async decr(key: string, ...given: CountArguments): Promise<number> {
    return this.count(key, -1, given);
  }

  async getDel<T = unknown>(key: string, options?: OnRedisError): Promise<T | undefined> {
    return takeValue(this.scope.engine, this.scope.key(key), this.scope.settings(options)) as Promise<T | undefined>;
  }

  async expire(key: string, ttl: Duration): Promise<boolean>;
  async expire(keys: Keys, options: SoftExpiryOptions): Promise<number>;
  async expire(keys: Keys, how: Duration | SoftExpiryOptions): Promise<boolean | number> {
    if (typeof how !== 'object' || how === null) {
      return expireValue(this.scope.engine, this.scope.key(keys as string), cacheOption.milliseconds('ttl', how, 1));
    }
    const { soft, ...options } = how;
    if (!soft) throw cacheOption.refused('soft', soft, 'true; a hard expiry is del');
    const settings = { ...this.scope.settings(options), softly: true };
    return this.scope.engine.invalidations.invalidate(this.scope.keys(keys), settings);
  }

  async del(keys: Keys, options?: InvalidateOptions): Promise<number> {
    return this.scope.engine.invalidations.invalidate(this.scope.keys(keys), this.scope.settings(options));
  }

  async invalidate(keys: Keys, options?: InvalidateOptions): Promise<void> {
    await this.del(keys, options);
  }

  async mutate<T>(keys: Keys, write: () => Promise<T>, options?: InvalidateOptions): Promise<T> {
    return this.scope.engine.mutations.run(this.scope.keys(keys), write, this.scope.settings(options));
  }

  async deleteByTag(tags: Keys, options?: OnRedisError): Promise<void> {
    await this.scope.engine.invalidations.deleteByTag(this.scope.keys(tags), this.scope.settings(options).failOpen);
  }

  async expireByTag(tags: Keys, options?: OnRedisError): Promise<void> {
    await this.scope.engine.invalidations.deleteByTag(
      this.scope.keys(tags),
      this.scope.settings(options).failOpen,
      true,
    );
  }

  async deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number> {
    return this.deleteMatching({ prefix: this.scope.beginning(prefix) }, options);
  }

  async deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number> {
    const literal = this.keyPrefix.replace(/[\\*?[\]]/g, '\\$&');
    return this.deleteMatching({ pattern: literal + cacheKey(pattern) }, options);
  }

  async doubleDelete<T>(
    keys: Keys,
    write: () => Promise<T>,
    { delay, ...options }: { delay: Duration } & OnRedisError,
  ): Promise<T> {
    const wait = cacheOption.timerMilliseconds('delay', delay, 1);
    return this.scope.engine.doubleDeletions.run(
      this.scope.keys(keys),
      write,
      wait,
      this.scope.settings(options).failOpen,
    );
  }

  async flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T> {
    try {
      return await write();
    } finally {
      await this.deleteByPrefix(prefix, options);
    }
  }

  pipeline(): CachePipeline {
    return new CachePipeline(this);
  }

  /**
   * A filter that knows which ids there are not, over plain bits in Redis; of one name and capacity, it is the same in
   * every process.
   *
   * @throws CacheConfigError for an option it cannot take
   */
  bloomFilter(name: string, options: BloomFilterOptions): BloomFilter {
    return new BloomFilter(name, options, this.scope.engine.calls);
  }

  /** What has happened since the application began. */
  stats(): CacheStats {
    return this.scope.engine.stats();
  }

  /** @internal Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  /** @internal */
  onModuleInit(): void {
    this.runtime.boot();
  }

  private async store(
    key: string,
    value: unknown,
    options: SetOptions | undefined,
    ifAbsent: boolean,
    go?: Promise<unknown>,
  ): Promise<boolean> {
    const full = this.scope.key(key);
    const settings = withTagsOf(this.keyPrefix, this.scope.settings(options));
    return storeValue(this.scope.engine, full, value, settings, ifAbsent, go);
  }

  private async count(key: string, sign: 1 | -1, given: CountArguments): Promise<number> {
    const [first, second] = given;
    const { by = 1, options } = typeof first === 'object' ? { options: first } : { by: first, options: second };
    if (!Number.isSafeInteger(by)) throw cacheOption.refused('by', by, 'a whole number');
    const ttl = cacheOption.endlessMilliseconds('ttl', options?.ttl);
    return addToNumber(this.scope.engine, this.scope.key(key), sign * by, ttl);
  }

  private deleteMatching(
    match: { prefix: string } | { pattern: string },
    { batch = DEFAULT_BATCH, ...options }: DeleteMatchingOptions = {},
  ): Promise<number> {
    if (!Number.isSafeInteger(batch) || batch < 1)
      throw cacheOption.refused('batch', batch, 'a whole number from 1 on');
    return this.scope.engine.matchingDeletions.delete({ match, batch }, this.scope.settings(options).failOpen);
  }
}
