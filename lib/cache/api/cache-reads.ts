import { abandonable } from './abandonable.js';
import { BatchLoad } from '../read/batch-load.js';
import { inBatches, valuesOf } from '../store/batches.js';
import type { CacheEngine } from '../cache-engine.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheKey, cacheKeys, composedKey } from './cache-keys.js';
import type { BatchLoader, Loader } from '../load/cache-loader.js';
import type { CacheEntryOptions, ReadOptions } from '../options/cache-options.js';
import { entrySettings, readSettings, type EntrySettings } from '../options/entry-settings.js';
import { decode, isFresh, judgedByTags, type Found } from '../read/lookup.js';
import { keyResource } from '../invalidation/step-order.js';

/** What reads the values under keys that begin with one prefix, and loads them. */
export abstract class CacheReads {
  /** @internal */
  constructor(
    /** @internal */
    protected readonly engineOf: () => CacheEngine,
    /** What every key begins with here. */
    readonly keyPrefix: string,
  ) {}

  /**
   * A key of several parts: `key('shop', 'product', 7)` is `shop:product:7`. Separators inside a part are escaped, so
   * that no part can forge another key.
   *
   * @throws CacheKeyError for a part that is undefined, null, an object, NaN or an empty string
   */
  key(...parts: readonly (string | number | bigint | boolean)[]): string {
    return composedKey(parts);
  }

  /**
   * The value under the key; where there is none, what the loader returns, which is then stored. One loader at a time
   * runs for a key, over all processes, and what it returns is not stored if the key was invalidated meanwhile.
   *
   * Callers of one process that ask for a key at the same time get the same object: treat it as read-only.
   *
   * @throws `signal.reason` once the signal is aborted; the load goes on
   * @throws what the loader throws, unless there is a stale value to fall back on
   * @throws CacheTimeoutError when the loader takes longer than `loaderTimeout`
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  getOrSet<T>(key: string, loader: Loader<T>, options?: ReadOptions): Promise<T> {
    try {
      const engine = this.engineOf();
      const settings = readSettings(options, engine.settings.entries, this.keyPrefix);
      const full = this.keyPrefix + cacheKey(key);
      if (!options?.signal) return engine.fetch(full, loader, settings) as Promise<T>;
      return abandonable(options.signal, () => engine.fetch(full, loader, settings) as Promise<T>);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * The values of the keys, in their order. The loader is called once, with the keys that have no value and that nobody
   * else is loading.
   *
   * @throws what `getOrSet` throws
   */
  async getOrSetMany<T>(keys: readonly string[], loader: BatchLoader<T>, options?: ReadOptions): Promise<T[]> {
    const settings = readSettings(options, this.engineOf().settings.entries, this.keyPrefix);
    if (!options?.signal) return this.loadMany(keys, loader, settings);
    return abandonable(options.signal, () => this.loadMany(keys, loader, settings));
  }

  private async loadMany<T>(keys: readonly string[], loader: BatchLoader<T>, settings: EntrySettings): Promise<T[]> {
    const engine = this.engineOf();
    const unique = cacheKeys(keys);
    const batch = new BatchLoad(unique, loader, engine.loads.scopes, this.keyPrefix);
    const read: Parameters<BatchLoad['run']>[0] = (key, loading, rendezvous) =>
      engine.fetch(this.keyPrefix + key, loading, settings, rendezvous);
    const values = valuesOf(await batch.run(read));
    const byKey = new Map(unique.map((key, index) => [key, values[index]]));
    return keys.map((key) => byKey.get(key) as T);
  }

  /**
   * The value as it is stored, `undefined` when there is none, or Redis fails and `onRedisError` is 'open'. Loads
   * nothing.
   */
  async get<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const settings = entrySettings(options, engine.settings.entries);
    const kept = settings.strong ? undefined : engine.firstLevel?.get(full);
    if (kept) {
      engine.counters.firstLevelHits += 1;
      return kept.value as T;
    }
    const changes = engine.stepOrder.afterKey(full);
    if (changes) await changes;
    const read = () => engine.calls.run('read', full, () => engine.calls.store.read(full));
    return this.find<T>(engine, full, settings, read);
  }

  private async find<T>(
    engine: CacheEngine,
    full: string,
    settings: EntrySettings,
    read: () => Promise<Buffer | null>,
  ): Promise<T | undefined> {
    const doubt = engine.unconfirmed.doubtAbout(full);
    if (doubt && settings.failOpen) return undefined;
    try {
      if (doubt) throw doubt;
      const found = await this.fresh(engine, full, await read());
      if (!found) {
        engine.counters.misses += 1;
        return undefined;
      }
      engine.counters.secondLevelHits += 1;
      return found.value as T;
    } catch (error) {
      const spare = settings.strong || doubt ? undefined : engine.firstLevel?.spare(full);
      if (spare) return spare.value as T;
      return this.withoutRedis(error, settings);
    }
  }

  /** As `get`, for many keys, in their order. */
  async mget<T = unknown>(
    keys: readonly string[],
    options?: Pick<CacheEntryOptions, 'onRedisError'>,
  ): Promise<(T | undefined)[]> {
    const engine = this.engineOf();
    // All keys are read before any tag: a change of a tag may wait for a change of one of these keys, which would wait
    // for its read.
    const reads = await inBatches(keys, (key, go) => this.readOf<T>(engine, key, options, go));
    const found = await Promise.allSettled(valuesOf(reads).map((judge) => judge()));
    return valuesOf(found);
  }

  /**
   * Reads after `go`, before the changes that are called later. Answers, once it has read, what judges what it read.
   */
  private async readOf<T>(
    engine: CacheEngine,
    key: string,
    options: Pick<CacheEntryOptions, 'onRedisError'> | undefined,
    go: Promise<unknown> | undefined,
  ): Promise<() => Promise<T | undefined>> {
    const full = this.keyPrefix + cacheKey(key);
    const settings = entrySettings(options, engine.settings.entries);
    const kept = settings.strong ? undefined : engine.firstLevel?.get(full);
    if (kept) {
      engine.counters.firstLevelHits += 1;
      return async () => kept.value as T;
    }
    const read = () => engine.calls.run('read', full, () => engine.calls.store.read(full));
    const inTurn = async () => {
      await go;
      return read();
    };
    const reading = go
      ? engine.stepOrder.run([{ resource: keyResource(full), mode: 'read' }], inTurn)
      : (engine.stepOrder.afterKey(full)?.then(read) ?? read());
    await reading.catch(() => {});
    return () => this.find<T>(engine, full, settings, () => reading);
  }

  /** Milliseconds that the value is kept; `null` when there is none. @throws CacheBackendError when Redis fails */
  async ttl(key: string): Promise<number | null> {
    const { calls, unconfirmed, stepOrder } = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const changes = stepOrder.afterKey(full);
    if (changes) await changes;
    if (unconfirmed.size > 0) await unconfirmed.settle(full);
    return calls.run('ttl', full, () => calls.store.ttl(full));
  }

  /** Whether `get` would find a value, which may be `undefined` itself. @throws CacheBackendError when Redis fails */
  async has(key: string): Promise<boolean> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const changes = engine.stepOrder.afterKey(full);
    if (changes) await changes;
    if (engine.unconfirmed.size > 0) await engine.unconfirmed.settle(full);
    const data = await engine.calls.run('read', full, () => engine.calls.store.read(full));
    return (await this.fresh(engine, full, data)) !== undefined;
  }

  /** @internal */
  protected async fresh(engine: CacheEngine, full: string, data: Buffer | null): Promise<Found | undefined> {
    const found = decode(engine, full, data);
    if (!found?.entry?.tags) return found && isFresh(found) ? found : undefined;
    const judged = isFresh(found) ? await judgedByTags(engine, full, found, []) : undefined;
    return judged && isFresh(judged) ? judged : undefined;
  }

  /** @internal */
  protected full(keys: string | readonly string[]): readonly string[] {
    return cacheKeys(keys).map((key) => this.keyPrefix + key);
  }

  /** @internal */
  protected withoutRedis(error: unknown, { failOpen }: EntrySettings): undefined {
    if (!(error instanceof CacheBackendError) || !failOpen) throw error;
    this.engineOf().counters.redisErrors += 1;
    return undefined;
  }
}
