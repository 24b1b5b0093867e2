import { CacheNotWiredError } from '../errors/cache-errors.js';
import type { CacheService } from '../cache/cache.service.js';
import type { MethodCall } from './method-interceptor.js';

/** The property that holds the `CacheService` of an instance: a symbol, so that no name of the class is taken. */
export const CACHE_SERVICE = Symbol.for('nest-redis-lock:cache-service');

/** @throws CacheNotWiredError when Nest did not create the instance */
export function cacheServiceOf({ instance, name }: MethodCall): CacheService {
  const service = (instance as { [CACHE_SERVICE]?: CacheService } | undefined)?.[CACHE_SERVICE];
  if (service) return service;
  throw new CacheNotWiredError(
    `${name} did not run: its instance has no CacheService. Let Nest create it as a provider or controller of an ` +
      'application that imports RedisLockModule (or RedisLockTestingModule). An instance of a factory (useFactory) or a ' +
      'value (useValue) gets it when the application initialises, unless it is request-scoped, in a lazily loaded ' +
      'module, or inside of another object; there, call CacheService itself; in a test, wire() of nest-redis-lock/testing',
  );
}

/** A mock answers, and calls nothing. */
export function mockedCache({ name }: MethodCall): CacheNotWiredError {
  return new CacheNotWiredError(
    `${name} did not run: the getOrSet() of its CacheService, a mock, gave no value and did not call it. Import ` +
      'RedisLockTestingModule instead of mocking CacheService, or let the mock call the loader',
  );
}
