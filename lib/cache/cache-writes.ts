import { inBatches } from './batches.js';
import { CacheBackendError, CacheConfigError } from './cache-errors.js';
import { cacheKey } from './cache-keys.js';
import type { CacheEntryOptions } from './cache-options.js';
import { CacheReads } from './cache-reads.js';
import { milliseconds, refused, type Duration } from './duration.js';
import { countable, emptyStamp } from './envelope.js';
import { entrySettings, type EntrySettings } from './entry-settings.js';
import { jittered, tagMemory } from './leased-load.js';

/** What `set` takes. */
export type SetOptions = Pick<CacheEntryOptions, 'ttl' | 'jitter' | 'nullTtl' | 'tags' | 'onRedisError'>;

/** What stores values by hand, and counts. */
export abstract class CacheWrites extends CacheReads {
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
      if (engine.unconfirmed.size > 0) await engine.unconfirmed.settle(full);
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

  /**
   * Lets the value live for so long from now; `false` when there is none. A first level that reads it after that goes by the `ttl` that it
   * was stored with, and may keep it for up to `l1.ttl` longer than Redis.
   *
   * @throws CacheBackendError when Redis fails
   */
  async expire(key: string, ttl: Duration): Promise<boolean> {
    const { calls, invalidations, unconfirmed } = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const request = { key: full, ttl: milliseconds('ttl', ttl, 1) };
    if (unconfirmed.size > 0) await unconfirmed.settle(full);
    const found = await calls.run('expire', full, () => calls.store.expire(request));
    invalidations.forget(full);
    return found;
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
      if (ifAbsent && engine.unconfirmed.size > 0) await engine.unconfirmed.settle(full);
      const before = engine.invalidations.deletionsThen(full);
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
      engine.unkeptClasses.look(key, value, settings.revive);
      return await engine.envelopes.seal(value, mark);
    } catch (error) {
      throw new CacheConfigError(`The value of "${key}" cannot be stored: ${String(error)}`, [key]);
    }
  }
}
