import type { CacheOptions } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../lib/backends/memory/memory-cache-store.js';
import { CacheEngine } from '../../lib/cache/cache-engine.js';
import { CacheRuntime } from '../../lib/cache/cache-runtime.js';
import { CacheService } from '../../lib/cache/cache.service.js';
import { cacheSettings } from '../../lib/cache/options/cache-options.js';
import { LimitedLog } from '../../lib/errors/limited-log.js';
import { FirstLevel } from '../../lib/cache/values/first-level.js';
import { RecordingLogger } from './recording-logger.js';

export interface ScriptedCache extends Disposable {
  readonly cache: CacheService;
  readonly engine: CacheEngine;
  /** In memory; a test puts steps of its own in the place of what it does. */
  readonly store: CacheStore;
  readonly logger: RecordingLogger;
}

/** A cache over a store whose steps take the time, and fail, as a test says. */
export function scriptedCache(options: CacheOptions = {}, store = memoryCacheStore()): ScriptedCache {
  const logger = new RecordingLogger();
  const log = new LimitedLog(logger);
  const engine = new CacheEngine(store, cacheSettings(options), log, FirstLevel);
  const runtime = new CacheRuntime(engine, log, {});
  runtime.boot();
  return {
    cache: new CacheService(runtime),
    engine,
    store,
    logger,
    [Symbol.dispose]: () => void engine.stop(),
  };
}
