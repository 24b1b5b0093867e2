import { redis } from '../backends/redis/locks/redis-lock-backend.js';
import { openCacheEngine } from '../cache/cache-engine-opening.js';
import { CacheRuntime } from '../cache/cache-runtime.js';
import { CacheService } from '../cache/cache.service.js';
import { LockBackends } from '../lock/backend/lock-backends.js';
import { LockService } from '../lock/lock.service.js';
import { openCacheStore } from '../redis-lock.cache-store.js';
import { resolveModuleOptions } from '../redis-lock.options.js';
import type { GlobalOptions } from './global-options.js';
import { openStore } from './store.js';

/** How long (ms) one command may take: longer than in an application, where callers wait. */
const COMMAND_TIMEOUT = 5_000;

export interface Services {
  readonly locks: LockService;
  readonly cache: CacheService;
}

/**
 * Runs `body` with services as those of an application, but without its check at start-up, which writes keys; then
 * closes them.
 *
 * @throws UsageError, LockConfigError or CacheConfigError for options that it cannot take
 */
export async function withServices<T>(given: GlobalOptions, body: (services: Services) => Promise<T>): Promise<T> {
  const { module, close } = await openStore(given);
  const { prefix } = given;
  const {
    redis: connection,
    backend,
    cache,
    ...options
  } = resolveModuleOptions({
    ...module,
    ...(prefix !== undefined && { prefix }),
    commandTimeout: COMMAND_TIMEOUT,
    cache: { commandTimeout: COMMAND_TIMEOUT, defaults: { onRedisError: 'throw' } },
  });
  const main = backend ?? redis(connection as NonNullable<typeof connection>);
  const backends = new LockBackends({ ...options, main });
  const store = cache && (await openCacheStore(cache, options.prefix, main));
  const engine = store && (await openCacheEngine(store, cache, backends.logger));
  const runtime = new CacheRuntime(engine, backends.logger, undefined);
  backends.whenStopping(() => runtime.stop());
  const locks = new LockService(backends);
  try {
    return await body({ locks, cache: new CacheService(runtime) });
  } finally {
    await locks.onApplicationShutdown();
    close();
  }
}
