import { Injectable, type OnModuleInit } from '@nestjs/common';
import { textOf } from '../errors/limited-log.js';
import { encodeKeyPart } from '../keys/key-part.js';
import { callable, trueOrFalse, type Duration } from '../options/checks.js';
import { cacheOption } from '../options/option-checks.js';
import { listenToAbort } from '../timing/abort-listeners.js';
import type { CacheEngine } from './cache-engine.js';
import type { CacheRuntime } from './cache-runtime.js';
import { about, cacheKey, composedKey, KeyScope, timeToKeep } from './key-scope.js';
import type { BatchLoader, Loader } from './load/cache-loader.js';
import type {
  CacheKeyInfo,
  DeleteMatchingOptions,
  DoubleDeleteOptions,
  InvalidateOptions,
  CacheOperations,
  CountArguments,
  CountOptions,
  SetOptions,
  SoftExpiryOptions,
} from './operations.js';
import type { CacheEntryOptions, ReadOptions } from './options/cache-options.js';
import { lifetime, withTagsOf } from './options/entry-settings.js';
import { CachePipeline } from './pipeline.js';
import { CacheExpiringSetOperations, CacheSetOperations } from './sets.js';
import { BloomFilter, type BloomFilterOptions } from './store/bloom-filter.js';
import type { CacheStats } from './store/cache-stats.js';
import { inBatches, valuesOf } from './store/store-calls.js';
import {
  addToNumber,
  batchOf,
  deleteTwice,
  expireValue,
  matchingDeletion,
  storeValue,
  takeValue,
} from './value-changes.js';
import { getValue, getValues, hasValue, inspectKey, loadValues, remainingTime } from './value-reads.js';

type Keys = string | readonly string[];
type OnRedisError = Pick<CacheEntryOptions, 'onRedisError'>;

const requireFunction = callable();
const DELAY = 'an object with the delay until the last deletion';

/**
 * Caches values in Redis and, if the module's options say so, also in the memory of the process: reads through, stores
 * and invalidates.
 */
@Injectable()
export class CacheService implements CacheOperations, OnModuleInit {
  /** Sets of strings, each of which expires as a whole. */
  readonly sets: CacheSetOperations;
  /** Sets of strings whose members expire one by one. */
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
    // Escaped, so that no name reaches into the namespace of another: 'a:b' is not 'b' in 'a'.
    return new CacheService(this.runtime, `${this.keyPrefix}${encodeKeyPart(cacheKey(name))}:`);
  }

  key(...parts: readonly (string | number | bigint | boolean)[]): string {
    return composedKey(parts);
  }

  getOrSet<T>(key: string, loader: Loader<T>, options?: ReadOptions): Promise<T> {
    try {
      const { reads } = this.scope.opened ?? this.scope.engine;
      const settings = this.scope.readSettings('getOrSet', key, options);
      if (typeof loader !== 'function') requireFunction(loader, 'loader', cacheOption);
      const full = this.scope.key(key);
      if (!options?.signal) return reads.read(full, loader, settings) as Promise<T>;
      const { signal } = options;
      return abandonable(signal, () => reads.read(full, loader, { ...settings, signal }) as Promise<T>);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async getOrSetMany<T>(keys: readonly string[], loader: BatchLoader<T>, options?: ReadOptions): Promise<T[]> {
    const { engine } = this.scope;
    requireFunction(loader, 'loader', cacheOption);
    const given = this.scope.readSettings('getOrSetMany', requireList(keys), options);
    const remedy = 'no filter: it has one id, so ask for many with filter.mayHaveMany(ids) before';
    about('getOrSetMany', keys, () =>
      cacheOption.require(options?.bloom === undefined, 'bloom', options?.bloom, remedy),
    );
    // That of the defaults is for single keys.
    const settings = { ...given, bloom: undefined };
    if (!options?.signal) return loadValues(engine, this.keyPrefix, keys, loader, settings);
    const { signal } = options;
    return abandonable(signal, () => loadValues(engine, this.keyPrefix, keys, loader, { ...settings, signal }));
  }

  async get<T = unknown>(key: string, options?: OnRedisError): Promise<T | undefined> {
    return getValue<T>(this.scope.engine, this.scope.key(key), this.scope.settings('read', 'get', key, options));
  }

  async mget<T = unknown>(keys: readonly string[], options?: OnRedisError): Promise<(T | undefined)[]> {
    const full = requireList(keys).map((key) => this.scope.key(key));
    return getValues<T>(this.scope.engine, full, this.scope.settings('read', 'mget', keys, options));
  }

  async ttl(key: string): Promise<number | null> {
    return remainingTime(this.scope.engine, this.scope.key(key));
  }

  async has(key: string): Promise<boolean> {
    return hasValue(this.scope.engine, this.scope.key(key));
  }

  async inspect(key: string): Promise<CacheKeyInfo | null> {
    return inspectKey(this.scope.engine, this.scope.key(key));
  }

  async set(key: string, value: unknown, options?: SetOptions): Promise<void> {
    await this.store('set', key, value, options, false);
  }

  async setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean> {
    return this.store('setIfAbsent', key, value, options, true);
  }

  async mset(
    values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>,
    options?: SetOptions,
  ): Promise<void> {
    const given =
      values instanceof Map ? values : cacheOption.object('values', values, 'an object of values, or a Map');
    const entries: [string, unknown][] = given instanceof Map ? [...given] : Object.entries(given);
    valuesOf(await inBatches(entries, ([key, value], go) => this.store('mset', key, value, options, false, go)));
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
    const settings = this.scope.settings('read', 'getDel', key, options);
    return takeValue(this.scope.engine, this.scope.key(key), settings) as Promise<T | undefined>;
  }

  async expire(key: string, ttl: Duration): Promise<boolean>;
  async expire(keys: Keys, options: SoftExpiryOptions): Promise<number>;
  async expire(keys: Keys, how: Duration | SoftExpiryOptions): Promise<boolean | number> {
    if (typeof how !== 'object' || how === null) {
      const key = this.scope.key(keys as string);
      const ttl = about('expire', [keys as string], () => lifetime(how, 'ttl', cacheOption));
      return expireValue(this.scope.engine, key, ttl);
    }
    const { soft, ...options } = how;
    about('expire', typeof keys === 'string' ? [keys] : keys, () =>
      cacheOption.require((soft as unknown) === true, 'soft', soft, 'true; a hard expiry is del'),
    );
    const settings = { ...this.scope.settings('deletion', 'expire', keys, options), softly: true };
    return this.scope.engine.invalidations.invalidate(this.scope.keys(keys), settings);
  }

  async del(keys: Keys, options?: InvalidateOptions): Promise<number> {
    return this.delete('del', keys, options);
  }

  async invalidate(keys: Keys, options?: InvalidateOptions): Promise<void> {
    await this.delete('invalidate', keys, options);
  }

  async mutate<T>(keys: Keys, write: () => Promise<T>, options?: InvalidateOptions): Promise<T> {
    requireFunction(write, 'write', cacheOption);
    const settings = this.scope.settings('deletion', 'mutate', keys, options);
    return this.scope.engine.mutations.run(this.scope.keys(keys), write, settings);
  }

  async deleteByTag(tags: Keys, options?: OnRedisError): Promise<void> {
    const { failOpen } = this.scope.settings('read', 'deleteByTag', tags, options);
    await this.scope.engine.invalidations.deleteByTag(this.scope.keys(tags), failOpen);
  }

  async expireByTag(tags: Keys, options?: OnRedisError): Promise<void> {
    const { failOpen } = this.scope.settings('read', 'expireByTag', tags, options);
    await this.scope.engine.invalidations.deleteByTag(this.scope.keys(tags), failOpen, true);
  }

  async deleteByPrefix(prefix: string, options?: DeleteMatchingOptions): Promise<number> {
    return this.deletionByPrefix('deleteByPrefix', prefix, options)();
  }

  async deleteByPattern(pattern: string, options?: DeleteMatchingOptions): Promise<number> {
    const literal = this.keyPrefix.replace(/[\\*?[\]]/g, '\\$&');
    return matchingDeletion(this.scope, 'deleteByPattern', { pattern: literal + cacheKey(pattern) }, options)();
  }

  async doubleDelete<T>(keys: Keys, write: () => Promise<T>, options: DoubleDeleteOptions): Promise<T> {
    requireFunction(write, 'write', cacheOption);
    cacheOption.object('options', options, DELAY);
    return deleteTwice(this.scope, 'doubleDelete', { keys: this.scope.keys(keys) }, write, options);
  }

  async doubleDeleteByPrefix<T>(
    prefix: string,
    write: () => Promise<T>,
    given: DoubleDeleteOptions & DeleteMatchingOptions,
  ): Promise<T> {
    requireFunction(write, 'write', cacheOption);
    cacheOption.object('options', given, DELAY);
    const { batch, ...options } = given;
    const target = {
      prefix: this.scope.beginning(prefix),
      batch: about('doubleDeleteByPrefix', [prefix], () => batchOf(batch)),
    };
    return deleteTwice(this.scope, 'doubleDeleteByPrefix', target, write, options);
  }

  async flush<T>(prefix: string, write: () => Promise<T>, options?: DeleteMatchingOptions): Promise<T> {
    requireFunction(write, 'write', cacheOption);
    // Checked before the write: one that is carried out needs its deletion.
    const deletion = this.deletionByPrefix('flush', prefix, options);
    try {
      return await write();
    } finally {
      await deletion();
    }
  }

  pipeline(): CachePipeline {
    return new CachePipeline(this);
  }

  /**
   * A filter, kept as bits in Redis, that knows which ids do not exist. All processes share the filter of one name and
   * capacity.
   *
   * @throws CacheConfigError for an option that it cannot take
   */
  bloomFilter(name: string, options: BloomFilterOptions): BloomFilter {
    cacheOption.object('options', options, 'an object with its capacity');
    cacheOption.only('bloomFilter', options, ['capacity', 'errorRate', 'ttl']);
    return new BloomFilter(name, options, this.scope.engine.calls);
  }

  /** The counters of this cache since the application began. */
  stats(): CacheStats {
    return this.scope.engine.stats();
  }

  /**
   * @internal Does what a decorated method has made necessary: now, or by `cache.afterCommit` once the transaction of
   * its caller has committed.
   */
  async onceCommitted(name: string, run: () => Promise<void>): Promise<void> {
    const { engine } = this.scope;
    const { afterCommit } = engine.settings;
    if (!afterCommit) return run();
    const later = () => run().catch((error: unknown) => engine.warn(`${name}, after the commit: ${textOf(error)}`));
    let accepted = false;
    try {
      const answer: unknown = afterCommit(later);
      cacheOption.decision('cache.afterCommit', answer);
      accepted = trueOrFalse(answer, 'cache.afterCommit', cacheOption);
    } catch (error) {
      engine.warn(`Option "cache.afterCommit" did not answer, so ${name} does not wait for a commit: ${textOf(error)}`);
    }
    if (!accepted) await run();
  }

  /** @internal What the health check looks at; `undefined` if the application does not use the cache. */
  get engineInUse(): CacheEngine | undefined {
    return this.runtime.inUse;
  }

  /** @internal Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  /** @internal */
  onModuleInit(): void {
    this.runtime.boot();
  }

  private delete(method: string, keys: Keys, options: InvalidateOptions | undefined): Promise<number> {
    const settings = this.scope.settings('deletion', method, keys, options);
    return this.scope.engine.invalidations.invalidate(this.scope.keys(keys), settings);
  }

  private deletionByPrefix(
    method: string,
    prefix: string,
    options: DeleteMatchingOptions | undefined,
  ): () => Promise<number> {
    return matchingDeletion(this.scope, method, { prefix: this.scope.beginning(prefix) }, options);
  }

  private async store(
    method: string,
    key: string,
    value: unknown,
    options: SetOptions | undefined,
    ifAbsent: boolean,
    go?: Promise<unknown>,
  ): Promise<boolean> {
    const full = this.scope.key(key);
    const given = this.scope.settings('store', method, key, options);
    const settings = withTagsOf(this.keyPrefix, given);
    return storeValue(this.scope.engine, full, value, settings, ifAbsent, go);
  }

  private async count(key: string, sign: 1 | -1, given: CountArguments): Promise<number> {
    const [first, second] = given;
    const { by = 1, options } = typeof first === 'object' ? { options: first } : { by: first, options: second };
    if (!Number.isSafeInteger(by)) throw cacheOption.refused('by', by, 'a whole number');
    const ttl = timeToKeep(sign === 1 ? 'incr' : 'decr', key, options);
    return addToNumber(this.scope.engine, this.scope.key(key), sign * by, ttl);
  }
}

/** Settles as `work` does, or rejects with the signal's reason if that is aborted first; the work then goes on. */
function abandonable<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    const listening = listenToAbort(signal, () => reject(signal.reason));
    work()
      .finally(() => listening.leave())
      .then(resolve, reject);
  });
}

/** @throws CacheConfigError */
function requireList(keys: readonly string[]): readonly string[] {
  cacheOption.require(Array.isArray(keys), 'keys', keys, 'a list of keys');
  return keys;
}
