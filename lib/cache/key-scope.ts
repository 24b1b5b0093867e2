import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { textOf } from '../errors/limited-log.js';
import { encodeKeyPart, quoted, whyNotAKeyPart, whyNotAName } from '../keys/key-part.js';
import { OptionResolver } from '../options/fixed-options.js';
import { cacheOption } from '../options/option-checks.js';
import type { CacheEngine } from './cache-engine.js';
import type { CacheRuntime } from './cache-runtime.js';
import type { CacheEntryOptions, ReadOptions } from './options/cache-options.js';
import { readSettings, settingsByHand, type ByHand, type EntrySettings } from './options/entry-settings.js';

/** Turns the keys and options of callers into full keys and complete settings, for the keys under one prefix. */
export class KeyScope {
  /** The engine, once it is in use. */
  opened: CacheEngine | undefined;
  private readonly byHand = {
    read: this.resolverOf('read'),
    deletion: this.resolverOf('deletion'),
    store: this.resolverOf('store'),
  } satisfies Record<ByHand, unknown>;
  private readonly readOptions = new OptionResolver((options: ReadOptions) =>
    readSettings(options, this.engine.settings.entries, this.keyPrefix),
  );

  constructor(
    private readonly runtime: CacheRuntime,
    readonly keyPrefix: string,
  ) {}

  /** @throws CacheConfigError when the application has no cache */
  get engine(): CacheEngine {
    return (this.opened ??= this.runtime.engine());
  }

  /** Of a call of `method` that does `what`. @throws CacheConfigError also for an option that it would ignore */
  settings(
    what: ByHand,
    method: string,
    keys: string | readonly string[],
    options: CacheEntryOptions | undefined,
  ): EntrySettings {
    if (options === undefined) return this.engine.settings.entries;
    return about(method, keys, () => this.byHand[what].settingsOf(options));
  }

  /** Of a read by `method`. @throws CacheConfigError */
  readSettings(method: string, keys: string | readonly string[], options: ReadOptions | undefined): EntrySettings {
    try {
      if (options !== undefined) return this.readOptions.ofFixed.get(options) ?? this.readOptions.settingsOf(options);
    } catch (error) {
      throw telling(error, method, keys);
    }
    return readSettings(undefined, this.engine.settings.entries, this.keyPrefix);
  }

  /** @throws CacheKeyError */
  key(key: string): string {
    // Almost every key is valid; `cacheKey` finds out what is wrong with the others.
    const valid = typeof key === 'string' && key !== '' && key.isWellFormed();
    return this.keyPrefix + (valid ? key : cacheKey(key));
  }

  /** Returns them without duplicates. @throws CacheKeyError */
  keys(keys: string | readonly string[]): readonly string[] {
    return cacheKeys(keys).map((key) => this.keyPrefix + key);
  }

  /** @throws CacheConfigError, CacheKeyError */
  beginning(prefix: string): string {
    if (typeof prefix !== 'string') throw cacheOption.refused('prefix', prefix, "a string; '' stands for all keys");
    return this.keyPrefix + keyBeginning(prefix);
  }

  private resolverOf(what: ByHand): OptionResolver<CacheEntryOptions, EntrySettings> {
    return new OptionResolver((options) => settingsByHand(what, options, this.engine.settings.entries));
  }
}

/** One key, or several without duplicates. @throws CacheKeyError */
export function cacheKeys(keys: string | readonly string[]): readonly string[] {
  if (typeof keys === 'string') return [cacheKey(keys)];
  if (!Array.isArray(keys)) throw new CacheKeyError(`Cache keys are ${textOf(keys)}; give a key or a list of keys`);
  return [...new Set((keys as readonly string[]).map(cacheKey))];
}

/** @throws CacheKeyError */
export function cacheKey(key: string): string {
  const why = whyNotAName(key);
  if (why) throw new CacheKeyError(`Cache key is ${why}; give a string of one character or more`);
  return key;
}

/** The beginning of keys, which may be ''. @throws CacheKeyError */
function keyBeginning(prefix: string): string {
  return prefix === '' ? prefix : cacheKey(prefix);
}

/** The parts joined by `:`, each escaped. @throws CacheKeyError */
export function composedKey(parts: readonly unknown[]): string {
  if (parts.length === 0) throw new CacheKeyError('A cache key has no parts; give one or more');
  return parts
    .map((part, index) => {
      const why = whyNotAKeyPart(part);
      if (why === undefined) return encodeKeyPart(String(part));
      throw new CacheKeyError(`Part ${index + 1} of a cache key is ${why}; give a string, number, bigint or boolean`);
    })
    .join(':');
}

/** The `ttl` of a call that takes nothing else and has no default; may be `Infinity`. @throws CacheConfigError */
export function timeToKeep(method: string, key: string, options: { readonly ttl: unknown } | undefined): number {
  return about(method, [key], () => {
    if (options) cacheOption.only(method, options, ['ttl']);
    return cacheOption.endlessMilliseconds('ttl', options?.ttl);
  });
}

/** Lets an error of `check` name the method and the keys of the call. @throws CacheConfigError */
export function about<T>(method: string, keys: string | readonly string[], check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw telling(error, method, keys);
  }
}

/** The error, which names the method and the keys of the call if it is about options. */
function telling(error: unknown, method: string, keys: string | readonly string[]): unknown {
  if (!(error instanceof CacheConfigError)) return error;
  const all = typeof keys === 'string' ? [keys] : keys;
  const of = Array.isArray(all) && all.length > 0 ? ` of ${quoted(all.slice(0, 3))}` : '';
  return new CacheConfigError(`"${method}"${of}: ${error.message}`, all);
}
