import { ConfigurableModuleBuilder, Module, type DynamicModule, type Provider, type Type } from '@nestjs/common';
import { APP_INTERCEPTOR, DiscoveryModule } from '@nestjs/core';
import { emptyCacheStore } from './backends/memory/empty-cache-store.js';
import { memoryCacheStore } from './backends/memory/memory-cache-store.js';
import { MemoryRateLimitStore } from './backends/memory/memory-primitives.js';
import { openRedisCacheStore } from './backends/redis/cache/redis-cache-store.js';
import { redis } from './backends/redis/redis-backend.js';
import { CacheRuntime, openCacheEngine } from './cache/cache-runtime.js';
import { CacheService } from './cache/cache.service.js';
import { isCacheStoreProvider, type CacheStore } from './contracts/cache-store.js';
import type { LockBackend } from './contracts/lock-backend.js';
import { LockErrorInterceptor } from './http/lock-error.interceptor.js';
import { LockBackends } from './lock/line/lock-backends.js';
import { LockService } from './lock/lock.service.js';
import { CacheEvents, LockEvents, PrimitiveEvents } from './observability/events.js';
import { lockOption, requireSource } from './options/option-checks.js';
import { IdempotencyService } from './primitives/idempotency/idempotency.service.js';
import { CountDownLatch } from './primitives/latch/count-down-latch.js';
import { LeaderElection } from './primitives/leader/leader-election.js';
import { LOCAL_RATE_LIMITS, RateLimiter } from './primitives/rate-limit/rate-limiter.js';
import { PrimitiveRuntime } from './primitives/runtime.js';
import { ScheduledJobs } from './primitives/schedule/scheduled-jobs.js';
import { SemaphoreService } from './primitives/semaphore/semaphore.service.js';
import { resolveModuleOptions, type RedisLockModuleOptions, type ResolvedModuleOptions } from './redis-lock.options.js';
import { InstanceAdopter, notedAtBoot } from './wiring/instance-adopter.js';
import { DecoratedMethodsCheck, NamedBackendsCheck, OnlyLeaderCandidates } from './wiring/start-checks.js';

/** The services of the primitives, which applications inject. */
const PRIMITIVE_SERVICES: readonly Type[] = [
  ScheduledJobs,
  LeaderElection,
  CountDownLatch,
  SemaphoreService,
  IdempotencyService,
  RateLimiter,
];

/** What the module provides for the primitives. */
const PRIMITIVE_PROVIDERS: readonly Provider[] = [
  {
    provide: PrimitiveRuntime,
    inject: [LockBackends],
    useFactory: (backends: LockBackends) => new PrimitiveRuntime(backends),
  },
  { provide: LOCAL_RATE_LIMITS, useValue: () => new MemoryRateLimitStore() },
  ...PRIMITIVE_SERVICES,
  OnlyLeaderCandidates,
];

export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<RedisLockModuleOptions>({ moduleName: 'RedisLock' })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createRedisLockOptions')
    .setExtras({ isGlobal: true }, (definition, { isGlobal }) => ({ ...definition, global: isGlobal }))
    .build();

/** The token of the options, from which the providers that connect are made. */
export const RESOLVED_OPTIONS = Symbol('resolved module options');

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
        return new LockBackends({ ...options, main }).checkEarly();
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
        if (engine) {
          const { options, report, main } = backends;
          const { commandTimeout } = options;
          const { calls } = engine;
          backends.whenStarting(calls, async () => {
            const ofLocks = main.calls.checks.underWay;
            if (ofLocks && cache && isWithLocks(cache)) calls.checks.add(ofLocks);
            if (given.cache) await calls.start({ prefix, commandTimeout, report });
          });
        }
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
    DecoratedMethodsCheck,
    NamedBackendsCheck,
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
    requireSource(options);
    return notedAtBoot(super.forRootAsync(options));
  }
}

/** Whether the values are kept where the locks are. */
function isWithLocks({ enabled, memory, redis: ofItsOwn }: NonNullable<ResolvedModuleOptions['cache']>): boolean {
  return enabled && !memory && ofItsOwn === undefined;
}

/** Opens the store of a module's cache: where its options say, or else the store of the lock backend, if it has one. */
export async function openCacheStore(
  { enabled, memory, redis: ofItsOwn }: NonNullable<ResolvedModuleOptions['cache']>,
  prefix: string | undefined,
  locks: LockBackend,
): Promise<CacheStore | undefined> {
  if (!enabled) return emptyCacheStore();
  if (memory) {
    const { BoundedValues } = await import('./backends/memory/bounded-values.js');
    return memoryCacheStore(new BoundedValues(memory));
  }
  if (ofItsOwn !== undefined) return openRedisCacheStore(ofItsOwn, prefix);
  return isCacheStoreProvider(locks) ? locks.openCacheStore(prefix) : undefined;
}
