import { memory } from '../backends/memory/memory-lock-backend.js';
import { CacheEngine } from '../cache/cache-engine.js';
import { CacheRuntime } from '../cache/cache-runtime.js';
import { CacheService } from '../cache/cache.service.js';
import { FirstLevel } from '../cache/first-level/first-level.js';
import { isCacheStoreProvider } from '../contracts/cache-store-provider.js';
import { CACHE, LOCKS } from '../interceptors/wiring/injected-services.js';
import { foreignDecoration, twoCopies } from '../interceptors/wiring/package-copy.js';
import { LockBackends } from '../lock/backend/lock-backends.js';
import { LockConfigError } from '../errors/lock-errors.js';
import { LockService } from '../lock/lock.service.js';
import { resolveModuleOptions, type RedisLockModuleOptions } from '../redis-lock.options.js';

/** What decorated methods need, without an application. */
export interface TestServices {
  readonly locks: LockService;
  readonly cache: CacheService;
  /** Ends what is held. Needed only by a test that leaves something held. */
  close(): Promise<void>;
}

/**
 * Locks and a cache in memory, as `RedisLockTestingModule` has them. @throws LockConfigError for an option it cannot
 * take
 */
export function testServices(options: Omit<RedisLockModuleOptions, 'redis'> = {}): TestServices {
  const { redis: _none, backend, cache, prefix, ...others } = resolveModuleOptions({ backend: memory(), ...options });
  const backends = new LockBackends({ ...others, prefix, main: backend ?? memory() });
  const keeper = backends.main.calls.backend;
  const engine =
    cache && isCacheStoreProvider(keeper)
      ? new CacheEngine(keeper.openCacheStore(prefix), cache, backends.logger, FirstLevel)
      : undefined;
  const runtime = new CacheRuntime(engine, backends.logger, options.cache);
  backends.whenStopping(() => runtime.stop());
  const locks = new LockService(backends);
  return { locks, cache: new CacheService(runtime), close: () => locks.onApplicationShutdown() };
}

/**
 * Gives an instance that a unit test made with `new` what its decorated methods need: by default, locks and a cache in
 * memory of its own. Instances that are to exclude each other are given the same services.
 *
 * @throws LockConfigError when the instance has no decorated method, or those of another copy of this package
 */
export function wire<T extends object>(instance: T, { locks, cache }: Partial<TestServices> = testServices()): T {
  if (!(LOCKS.property in instance) && !(CACHE.property in instance)) {
    throw new LockConfigError(
      `An instance of ${instance.constructor.name} has no method with a decorator of nest-redis-lock; wire one that has`,
    );
  }
  const foreign = foreignDecoration(instance, LOCKS) ?? foreignDecoration(instance, CACHE);
  if (foreign) throw new LockConfigError(twoCopies(`An instance of ${instance.constructor.name}`, foreign.copy));
  if (LOCKS.property in instance) Reflect.set(instance, LOCKS.property, locks);
  if (CACHE.property in instance) Reflect.set(instance, CACHE.property, cache);
  return instance;
}
