import { Module, type DynamicModule } from '@nestjs/common';
import { memory } from '../backends/memory/memory-lock-backend.js';
import { MemoryRateLimitStore } from '../backends/memory/memory-primitives.js';
import { CacheEngine } from '../cache/cache-engine.js';
import { CacheRuntime } from '../cache/cache-runtime.js';
import { CacheService } from '../cache/cache.service.js';
import { FirstLevel } from '../cache/values/first-level.js';
import { isCacheStoreProvider } from '../contracts/cache-store.js';
import { LockConfigError } from '../errors/lock-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { LockService } from '../lock/lock.service.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { CountDownLatch } from '../primitives/latch/count-down-latch.js';
import { LeaderElection } from '../primitives/leader/leader-election.js';
import { RateLimiter } from '../primitives/rate-limit/rate-limiter.js';
import { PrimitiveRuntime } from '../primitives/runtime.js';
import { ScheduledJobs } from '../primitives/schedule/scheduled-jobs.js';
import { SemaphoreService } from '../primitives/semaphore/semaphore.service.js';
import { RedisLockModule } from '../redis-lock.module.js';
import { resolveModuleOptions, type RedisLockModuleOptions } from '../redis-lock.options.js';
import {
  CACHE,
  IDEMPOTENCY,
  JOBS,
  LEADERS,
  LOCKS,
  SEMAPHORES,
  RATE_LIMITS,
  type InjectedService,
} from '../wiring/injected-services.js';
import { foreignDecoration, twoCopies } from '../wiring/instance-adopter.js';

/** The services that decorated methods need, and those that a test gives to constructors, without an application. */
export interface TestServices {
  readonly locks: LockService;
  readonly cache: CacheService;
  readonly jobs: ScheduledJobs;
  readonly leaders: LeaderElection;
  readonly semaphores: SemaphoreService;
  readonly idempotency: IdempotencyService;
  readonly rateLimits: RateLimiter;
  /** No decorated method needs it. */
  readonly latches: CountDownLatch;
  /** Ends all holds. Needed only by a test that leaves a lock held. */
  close(): Promise<void>;
}

/**
 * Locks and a cache in memory, as in `RedisLockTestingModule`.
 * @throws LockConfigError for an option that it cannot take
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
  const primitives = new PrimitiveRuntime(backends);
  return {
    locks,
    cache: new CacheService(runtime),
    jobs: new ScheduledJobs(locks, primitives),
    leaders: new LeaderElection(locks, backends),
    semaphores: new SemaphoreService(primitives),
    idempotency: new IdempotencyService(primitives, locks),
    rateLimits: new RateLimiter(primitives, () => new MemoryRateLimitStore()),
    latches: new CountDownLatch(primitives),
    close: () => locks.onApplicationShutdown(),
  };
}

/** The services by their names in `TestServices`. */
const INJECTED_AS = {
  locks: LOCKS,
  cache: CACHE,
  jobs: JOBS,
  leaders: LEADERS,
  semaphores: SEMAPHORES,
  idempotency: IDEMPOTENCY,
  rateLimits: RATE_LIMITS,
} satisfies Record<Exclude<keyof TestServices, 'latches' | 'close'>, InjectedService<{ readonly closed: boolean }>>;

/**
 * Gives an instance that a unit test made with `new` what its decorated methods need: by default, locks and a cache in
 * memory that no other instance uses. To let instances exclude each other, give them the same services.
 *
 * @throws LockConfigError when the instance has no decorated method, or has those of another copy of this package
 */
export function wire<T extends object>(instance: T, services: Partial<TestServices> = testServices()): T {
  const needed = Object.entries(INJECTED_AS).filter(([, { property }]) => property in instance);
  if (needed.length === 0) {
    throw new LockConfigError(
      `An instance of ${instance.constructor.name} has no method with a decorator of nest-redis-lock; wire one that has`,
    );
  }
  for (const [, injected] of needed) {
    const foreign = foreignDecoration(instance, injected);
    if (foreign) throw new LockConfigError(twoCopies(`An instance of ${instance.constructor.name}`, foreign.copy));
  }
  for (const [name, { property }] of needed) Reflect.set(instance, property, services[name as keyof TestServices]);
  return instance;
}

/**
 * `RedisLockModule` without a server, for unit tests of decorated classes: real locks and a real cache, in the memory
 * of the application under test. Every application that imports it has locks of its own.
 */
@Module({
  imports: [RedisLockModule.forRootAsync({ useFactory: () => ({ backend: memory() }) })],
})
export class RedisLockTestingModule {
  /** Takes options other than the defaults. */
  static forRoot(options: Omit<RedisLockModuleOptions, 'redis'> = {}): DynamicModule {
    return {
      module: ConfiguredTestingModule,
      imports: [RedisLockModule.forRootAsync({ useFactory: () => ({ backend: memory(), ...options }) })],
    };
  }
}

@Module({})
class ConfiguredTestingModule {}
