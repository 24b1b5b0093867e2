import type { CacheEngine } from '../cache-engine.js';
import type { BatchLoader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { BatchLoad } from '../read/batch-load.js';
import { valuesOf } from '../store/batches.js';
import { cacheKeys } from '../api/cache-keys.js';

/** Reads the values of the keys, all of which begin with `keyPrefix`, and loads the missing ones in one call. */
export async function loadValues<T>(
  engine: CacheEngine,
  keyPrefix: string,
  keys: readonly string[],
  loader: BatchLoader<T>,
  settings: EntrySettings,
): Promise<T[]> {
  const unique = cacheKeys(keys);
  const batch = new BatchLoad(unique, loader, engine.loadScopes, keyPrefix);
  const read: Parameters<BatchLoad['run']>[0] = (key, loading, participant) =>
    engine.reads.read(keyPrefix + key, loading, settings, participant);
  const values = valuesOf(await batch.run(read));
  const byKey = new Map(unique.map((key, index) => [key, values[index]]));
  return keys.map((key) => byKey.get(key) as T);
}
