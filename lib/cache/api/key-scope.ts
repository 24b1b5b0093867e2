import type { CacheEngine } from '../cache-engine.js';
import { refused } from '../options/cache-durations.js';
import type { CacheEntryOptions } from '../options/cache-options.js';
import { entrySettings, type EntrySettings } from '../options/entry-settings.js';
import { cacheKey, cacheKeys, keyBeginning } from './cache-keys.js';

/** Makes full keys and complete settings of what callers give: for the keys that begin with one prefix. */
export class KeyScope {
  constructor(
    private readonly runtime: { engine(): CacheEngine },
    readonly keyPrefix: string,
  ) {}

  /** @throws CacheConfigError when the application has no cache */
  get engine(): CacheEngine {
    return this.runtime.engine();
  }

  /** @throws CacheConfigError */
  settings(options: CacheEntryOptions | undefined): EntrySettings {
    return entrySettings(options, this.engine.settings.entries);
  }

  /** @throws CacheKeyError */
  key(key: string): string {
    return this.keyPrefix + cacheKey(key);
  }

  /** Without duplicates. @throws CacheKeyError */
  keys(keys: string | readonly string[]): readonly string[] {
    return cacheKeys(keys).map((key) => this.keyPrefix + key);
  }

  /** @throws CacheConfigError, CacheKeyError */
  beginning(prefix: string): string {
    if (typeof prefix !== 'string') throw refused('prefix', prefix, "a string; '' stands for all keys");
    return this.keyPrefix + keyBeginning(prefix);
  }
}
