import type { CacheOptions } from 'nest-redis-lock';
import type { CacheStore } from '../../lib/contracts/cache-store.js';
import { memoryCacheStore } from '../../lib/backends/memory/memory-cache-store.js';
import { CacheEngine } from '../../lib/cache/cache-engine.js';
import { CacheOperations } from '../../lib/cache/api/cache-operations.js';
import { cacheSettings } from '../../lib/cache/options/cache-settings.js';
import { FirstLevel } from '../../lib/cache/first-level/first-level.js';
import { RecordingLogger } from './recording-logger.js';

export interface ScriptedCache extends Disposable {
  readonly cache: CacheOperations;
  readonly engine: CacheEngine;
  /** In memory; a test puts steps of its own in the place of what it does. */
  readonly store: CacheStore;
  readonly logger: RecordingLogger;
}

/** A cache over a store whose steps take the time, and fail, as a test says. */
export function scriptedCache(options: CacheOptions = {}, store = memoryCacheStore()): ScriptedCache {
  const logger = new RecordingLogger();
  const engine = new CacheEngine(store, cacheSettings(options), logger, FirstLevel);
  engine.start();
  return {
    cache: new CacheOperations(() => engine, ''),
    engine,
    store,
    logger,
    [Symbol.dispose]: () => void engine.stop(),
  };
}
