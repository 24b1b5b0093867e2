import { inBatches, valuesOf } from '../store/batches.js';
import { CacheBackendError, CacheConfigError } from '../../errors/cache-errors.js';
import { cacheKey } from './cache-keys.js';
import type { CacheEntryOptions } from '../options/cache-options.js';
import { CacheReads } from './cache-reads.js';
import {
  endlessMilliseconds,
  milliseconds,
  refused,
  type Duration,
  type EndlessDuration,
} from '../options/cache-durations.js';
import { entrySettings, withTagsOf } from '../options/entry-settings.js';
import { jittered, staleTtlOf } from '../load/leased-load.js';
import { keyResource } from '../invalidation/step-order.js';
import { ValueWrite } from './value-write.js';

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

/** What stores values by hand, and counts. */
export abstract class CacheWrites extends CacheReads {
  /**
   * Stores the value, whatever was there. A load that is under way does not overwrite it. While a `mutate` or a
   * barrier of the key stands, nothing is stored.
   *
   * With `onRedisError: 'open'`, and Redis away, nothing is stored, and what is there is deleted as soon as Redis is
   * back.
   */
  async set(key: string, value: unknown, options?: SetOptions): Promise<void> {
    await this.write(key, value, options, false);
  }

  /** Stores the value if there is none; `false` when there was one, or a `mutate` or a barrier of the key stands. */
  async setIfAbsent(key: string, value: unknown, options?: SetOptions): Promise<boolean> {
    return this.write(key, value, options, true);
  }

  /** As `set`, for many keys. */
  async mset(
    values: Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown>,
    options?: SetOptions,
  ): Promise<void> {
    const entries = values instanceof Map ? [...values] : Object.entries(values);
    valuesOf(await inBatches(entries, ([key, value], go) => this.write(key as string, value, options, false, go)));
  }

  /**
   * Adds `by` (default 1) to the number under the key, and answers the sum. A number begins at 0, and lives for `ttl`
   * from then on, however often it is counted.
   *
   * @throws CacheConfigError without a `ttl`: a number that ends must not do so by surprise
   * @throws CacheConfigError when what is there is no whole number that `set` or `incr` stored
   * @throws CacheBackendError when Redis fails
   */
  async incr(key: string, options: CountOptions): Promise<number>;
  async incr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  async incr(key: string, ...given: CountArguments): Promise<number> {
    return this.count(key, 1, given);
  }

  /** As `incr`, the other way. */
  async decr(key: string, options: CountOptions): Promise<number>;
  async decr(key: string, by: number | undefined, options: CountOptions): Promise<number>;
  async decr(key: string, ...given: CountArguments): Promise<number> {
    return this.count(key, -1, given);
  }

  private async count(key: string, sign: 1 | -1, given: CountArguments): Promise<number> {
    const engine = this.engineOf();
    const [first, second] = given;
    const { amount = 1, options } = typeof first === 'object' ? { options: first } : { amount: first, options: second };
    if (!Number.isSafeInteger(amount)) throw refused('by', amount, 'a whole number');
    const by = sign * amount;
    const full = this.keyPrefix + cacheKey(key);
    const ttl = endlessMilliseconds('ttl', options?.ttl);
    engine.local.forget(full);
    const accesses = [{ resource: keyResource(full), mode: 'increment' }];
    try {
      return await engine.stepOrder.run(accesses, async () => {
        if (engine.unconfirmed.size > 0) await engine.unconfirmed.settle(full);
        return engine.calls.run('increment', full, () => engine.calls.store.increment({ key: full, by, ttl }));
      });
    } catch (error) {
      if (!/not an integer|overflow|out of range/.test(String(error))) throw error;
      throw new CacheConfigError(`"${full}" is no whole number that incr can add ${by} to: ${String(error)}`, [full]);
    } finally {
      engine.local.forget(full);
    }
  }

  /**
   * The value as `get` answers it, which is deleted in the same step: of all who ask for it, one gets it. Loads that
   * began before store nothing. It may be lost where the answer of Redis is: `undefined`, or an error, with
   * `onRedisError: 'throw'`, says so, and the value is deleted all the same.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  async getDel<T = unknown>(key: string, options?: Pick<CacheEntryOptions, 'onRedisError'>): Promise<T | undefined> {
    const engine = this.engineOf();
    const { calls, counters, invalidations, local, stepOrder, unconfirmed } = engine;
    const full = this.keyPrefix + cacheKey(key);
    const settings = entrySettings(options, engine.settings.entries);
    counters.invalidations += 1;
    local.forget(full);
    try {
      const data = await stepOrder.run([{ resource: keyResource(full) }], async () => {
        if (unconfirmed.size > 0) await unconfirmed.settle(full);
        return calls.run('get and deletion', full, () => calls.store.take(full));
      });
      const found = await this.fresh(engine, full, data);
      counters[found ? 'secondLevelHits' : 'misses'] += 1;
      return found?.value as T | undefined;
    } catch (error) {
      if (error instanceof CacheBackendError) invalidations.deleteLater(full);
      return this.withoutRedis(error, settings);
    } finally {
      local.forget(full);
    }
  }

  /**
   * Lets the value live for so long from now; `false` when there is none. A first level that reads it after that goes
   * by the `ttl` that it was stored with, and may keep it for up to `l1.ttl` longer than Redis.
   *
   * @throws CacheBackendError when Redis fails
   */
  async expire(key: string, ttl: Duration): Promise<boolean>;
  /**
   * Makes the values stale at once, as if their `ttl` had ended: a read loads, and falls back on them for its
   * `staleTtl`, as long as Redis keeps them. Loads that began before store nothing. Answers how many values there were;
   * numbers that are counted are deleted.
   *
   * Where Redis does not confirm it, they are deleted as soon as it is back, and not read by this process until then.
   *
   * @throws CacheBackendError when Redis fails and `onRedisError` is 'throw'
   */
  async expire(keys: string | readonly string[], options: SoftExpiryOptions): Promise<number>;
  async expire(keys: string | readonly string[], how: Duration | SoftExpiryOptions): Promise<boolean | number> {
    if (typeof how === 'object' && how !== null) return this.expireSoftly(keys, how);
    return this.endAfter(keys as string, how);
  }

  private async expireSoftly(
    keys: string | readonly string[],
    { soft, ...options }: SoftExpiryOptions,
  ): Promise<number> {
    const engine = this.engineOf();
    if (!soft) throw refused('soft', soft, 'true; a hard expiry is del');
    const settings = { ...entrySettings(options, engine.settings.entries), softly: true };
    return engine.invalidations.invalidate(this.full(keys), settings);
  }

  private async endAfter(key: string, ttl: Duration): Promise<boolean> {
    const { calls, local, stepOrder, unconfirmed } = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const request = { key: full, ttl: milliseconds('ttl', ttl, 1) };
    local.forget(full);
    try {
      return await stepOrder.run([{ resource: keyResource(full) }], async () => {
        if (unconfirmed.size > 0) await unconfirmed.settle(full);
        return calls.run('expire', full, () => calls.store.expire(request));
      });
    } finally {
      local.forget(full);
    }
  }

  private async write(
    key: string,
    value: unknown,
    options: SetOptions | undefined,
    ifAbsent: boolean,
    go?: Promise<unknown>,
  ): Promise<boolean> {
    const engine = this.engineOf();
    const full = this.keyPrefix + cacheKey(key);
    const settings = withTagsOf(this.keyPrefix, entrySettings(options, engine.settings.entries));
    const most = value === null || value === undefined ? Math.min(settings.ttl, settings.nullTtl) : settings.ttl;
    const ttl = jittered(most, settings.jitter);
    if (ttl === 0) {
      if (!ifAbsent) await engine.invalidations.invalidate([full], settings);
      return !ifAbsent;
    }
    const write = new ValueWrite(engine, full, value, ttl, staleTtlOf(value, settings), settings);
    try {
      return await write.store(ifAbsent, go);
    } catch (error) {
      return this.withoutRedis(error, settings) ?? false;
    }
  }
}
