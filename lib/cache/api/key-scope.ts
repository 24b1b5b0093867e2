import type { CacheEngine } from '../cache-engine.js';
import { cacheOption } from '../../options/option-checks.js';
import type { CacheEntryOptions, ReadOptions } from '../options/cache-options.js';
import { OptionResolver } from '../../options/fixed-options.js';
import { entrySettings, readSettings, type EntrySettings } from '../options/entry-settings.js';
import { cacheKey, cacheKeys, keyBeginning } from './cache-keys.js';

/** Makes full keys and complete settings of what callers give: for the keys that begin with one prefix. */
export class KeyScope {
  private readonly entryOptions = new OptionResolver((options: CacheEntryOptions) =>
    entrySettings(options, this.engine.settings.entries),
  );
  private readonly readOptions = new OptionResolver((options: ReadOptions) =>
    readSettings(options, this.engine.settings.entries, this.keyPrefix),
  );

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
    return options === undefined ? this.engine.settings.entries : this.entryOptions.settingsOf(options);
  }

  /** @throws CacheConfigError */
  readSettings(options: ReadOptions | undefined): EntrySettings {
    if (options !== undefined) return this.readOptions.settingsOf(options);
    return readSettings(undefined, this.engine.settings.entries, this.keyPrefix);
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
    if (typeof prefix !== 'string') throw cacheOption.refused('prefix', prefix, "a string; '' stands for all keys");
    return this.keyPrefix + keyBeginning(prefix);
  }
}
