import type { LimitedLog } from '../errors/limited-log.js';
import type { CacheStore } from '../contracts/cache-store.js';
import type { CacheEngine } from './cache-engine.js';
import type { CacheSettings } from './options/cache-settings.js';

/**
 * Loads the code of the cache, and of its first level if it has one: an application that only locks loads neither.
 */
export async function openCacheEngine(
  store: CacheStore,
  settings: CacheSettings,
  logger: LimitedLog,
): Promise<CacheEngine> {
  const [engine, firstLevel] = await Promise.all([
    import('./cache-engine.js'),
    settings.firstLevel && import('./first-level/first-level.js'),
  ]);
  return new engine.CacheEngine(store, settings, logger, firstLevel?.FirstLevel);
}
