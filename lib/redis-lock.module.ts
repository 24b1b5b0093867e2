import { Module, type DynamicModule } from '@nestjs/common';
import { APP_INTERCEPTOR, DiscoveryModule } from '@nestjs/core';
import { redis } from './backends/redis/locks/redis-lock-backend.js';
import { openCacheStore } from './redis-lock.cache-store.js';
import { openCacheEngine } from './cache/cache-engine-opening.js';
import { startCacheStore } from './cache/store/cache-store-start.js';
import { CacheRuntime } from './cache/cache-runtime.js';
import { CacheService } from './cache/cache.service.js';
import { CachedMethodsCheck } from './interceptors/wiring/cached-methods-check.js';
import { InstanceAdopter } from './interceptors/wiring/instance-adopter.js';
import { LockErrorInterceptor } from './interceptors/http/lock-error.interceptor.js';
import { IdempotentMethodsCheck } from './interceptors/wiring/idempotent-methods-check.js';
import { NamedBackendsCheck } from './interceptors/wiring/named-backends-check.js';
import { notedAtBoot } from './interceptors/wiring/package-copy.js';
import { LockBackends } from './lock/backend/lock-backends.js';
import { LockService } from './lock/lock.service.js';
import { CacheEvents } from './observability/cache-events.js';
import { LockEvents } from './observability/lock-events.js';
import { PrimitiveEvents } from './observability/primitive-events.js';
import { PRIMITIVE_PROVIDERS, PRIMITIVE_SERVICES } from './redis-lock.primitives.js';
import {
  ConfigurableModuleClass,
  MODULE_OPTIONS_TOKEN,
  type ASYNC_OPTIONS_TYPE,
  type OPTIONS_TYPE,
} from './redis-lock.module-definition.js';
import { lockOption } from './options/option-checks.js';
import { resolveModuleOptions, type RedisLockModuleOptions, type ResolvedModuleOptions } from './redis-lock.options.js';

const RESOLVED_OPTIONS = Symbol('resolved module options');

/**
 * Locks and a cache for the application, global by default.
 *
 * `RedisLockModule.forRoot({ redis: 'redis://localhost:6379' })`, or `forRootAsync` with `useFactory`, `useClass` or
 * `useExisting`. Call `app.enableShutdownHooks()`, so that held locks are finished and released on SIGTERM.
 */
@Module({
  imports: [DiscoveryModule],
  providers: [
    { provide: RESOLVED_OPTIONS, inject: [MODULE_OPTIONS_TOKEN], useFactory: resolveModuleOptions },
    {
      provide: LockBackends,
      inject: [RESOLVED_OPTIONS],
      useFactory: ({ redis: connection, backend, fenceTtl, ...options }: ResolvedModuleOptions) => {
        const fencing = fenceTtl === undefined ? {} : { fenceTtl };
        const main = backend ?? redis(connection as NonNullable<typeof connection>, fencing);
        return new LockBackends({ ...options, main });
      },
    },
    {
      provide: CacheRuntime,
      inject: [MODULE_OPTIONS_TOKEN, RESOLVED_OPTIONS, LockBackends],
      useFactory: async (
        given: RedisLockModuleOptions,
        { cache, prefix }: ResolvedModuleOptions,
        backends: LockBackends,
      ) => {
        const store = cache && (await openCacheStore(cache, prefix, backends.main.calls.backend));
        const engine = store && (await openCacheEngine(store, cache, backends.logger));
        const runtime = new CacheRuntime(engine, backends.logger, given.cache);
        if (store && given.cache)
          backends.whenStarting(() =>
            startCacheStore(store, {
              prefix,
              commandTimeout: backends.options.commandTimeout,
              report: backends.report,
              stopped: backends.stopped,
            }),
          );
        // A method that still holds a lock may have to invalidate cached values.
        backends.whenStopping(() => runtime.stop());
        return runtime;
      },
    },
    LockService,
    ...PRIMITIVE_PROVIDERS,
    {
      provide: CacheService,
      inject: [CacheRuntime],
      useFactory: (runtime: CacheRuntime) => new CacheService(runtime),
    },
    LockEvents,
    CacheEvents,
    PrimitiveEvents,
    InstanceAdopter,
    CachedMethodsCheck,
    NamedBackendsCheck,
    IdempotentMethodsCheck,
    { provide: APP_INTERCEPTOR, useClass: LockErrorInterceptor },
  ],
  exports: [LockService, CacheService, LockEvents, CacheEvents, PrimitiveEvents, ...PRIMITIVE_SERVICES],
})
export class RedisLockModule extends ConfigurableModuleClass {
  /**
   * Takes options that are known where the module is imported. @throws LockConfigError for an option that it cannot
   * take
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    lockOption.object('options', options, 'an object of module options');
    return notedAtBoot(super.forRoot(options));
  }

  /**
   * Takes options from a factory, a class or a provider such as `ConfigService`; `isGlobal` stands beside `useFactory`.
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    lockOption.object('options', options, 'an object with useFactory, useClass or useExisting');
    return notedAtBoot(super.forRootAsync(options));
  }
}
