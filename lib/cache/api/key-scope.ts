import type { CacheEngine } from '../cache-engine.js';
import { cacheOption } from '../../options/option-checks.js';
import type { CacheEntryOptions, ReadOptions } from '../options/cache-options.js';
import { OptionResolver } from '../../options/fixed-options.js';
import { entrySettings, readSettings, type EntrySettings } from '../options/entry-settings.js';
import { cacheKey, cacheKeys, keyBeginning } from './cache-keys.js';

/** Turns the keys and options of callers into full keys and complete settings, for the keys under one prefix. */
export class KeyScope {
  private opened: CacheEngine | undefined;
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
    return (this.opened ??= this.runtime.engine());
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
}
