import { inspect } from 'node:util';
import { Module, type DynamicModule } from '@nestjs/common';
import { memory } from '../backends/memory/memory-lock-backend.js';
import { MemoryRateLimitStore } from '../backends/memory/memory-primitives.js';
import { CacheEngine } from '../cache/cache-engine.js';
import { CacheRuntime } from '../cache/cache-runtime.js';
import { CacheService } from '../cache/cache.service.js';
import { FirstLevel } from '../cache/values/first-level.js';
import { isCacheStoreProvider } from '../contracts/cache-store.js';
import { messageOf } from '../errors/limited-log.js';
import { LockConfigError } from '../errors/lock-errors.js';
import type { Lock } from '../lock/hold/lock.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { LockService } from '../lock/lock.service.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { CountDownLatch } from '../primitives/latch/count-down-latch.js';
import { LeaderElection } from '../primitives/leader/leader-election.js';
import { RateLimiter } from '../primitives/rate-limit/rate-limiter.js';
import { PrimitiveRuntime } from '../primitives/runtime.js';
import { ScheduledJobs } from '../primitives/schedule/scheduled-jobs.js';
import { SemaphoreService } from '../primitives/semaphore/semaphore.service.js';
import { lockOption } from '../options/option-checks.js';
import { MODULE_OPTIONS_TOKEN, RedisLockModule, RESOLVED_OPTIONS } from '../redis-lock.module.js';
import {
  resolveModuleOptions,
  type RedisLockModuleOptions,
  type ResolvedModuleOptions,
} from '../redis-lock.options.js';
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
  /**
   * Does what cases of `lockBackendCases` ask of another process: for the program that `fork` of a world starts. It
   * runs until the case kills it.
   */
  answerCases(): void;
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
    answerCases: () => answerCases(locks),
    close: () => locks.onApplicationShutdown(),
  };
}

/** What a case asks of another process: to take a name. */
export interface Wanted {
  readonly name: string;
  readonly ttl?: number;
  readonly wait?: number;
  /** Takes the name twice, and blocks the event loop while it has what is left of the first `ttl`. */
  readonly blocks?: true;
}

/** What the process tells of it. `token`: of the lock, or `null` where the name was busy. */
export type Told = { readonly token: number | null } | { readonly failed: string };

function answerCases(locks: LockService): void {
  /** Kept: a lock that nobody keeps may be lost. */
  const held: Lock[] = [];
  const take = async ({ name, blocks, ...options }: Wanted): Promise<number | null> => {
    if (blocks) return blockAsNextHolder(locks, name, options.ttl ?? 0);
    const lock = await locks.tryAcquire(name, options);
    if (lock) held.push(lock);
    return lock?.fencingToken ?? null;
  };
  const tell = (told: Told | 'ready') => process.send?.(told);
  process.on('message', (wanted: Wanted) => {
    take(wanted).then(
      (token) => tell({ token }),
      (error: unknown) => tell({ failed: messageOf(error) }),
    );
  });
  // The process that runs the cases has ended without killing this one.
  process.once('disconnect', () => process.exit());
  tell('ready');
}

/** How often a slow machine may let a lease end too early. */
const MOST_TRIES = 5;

/** Gets the name from another caller of this process, whose lease of `ttl` would end while the event loop stands. */
async function blockAsNextHolder(locks: LockService, name: string, ttl: number): Promise<number> {
  let began = false;
  const body = async (lock: Lock) => {
    began = true;
    const end = performance.now() + 1.5 * ttl;
    while (performance.now() < end);
    // Its answer comes after that to the renewal.
    await locks.isLocked(name).catch(() => {});
    lock.assertHeld();
    return lock.fencingToken;
  };
  for (let again = 1; ; again++) {
    const first = await locks.acquire(name, { ttl, renew: false, wait: 60_000 });
    const second = locks.withLock(name, { ttl: 10 * ttl, wait: 60_000 }, body);
    await first.release().catch(() => {});
    try {
      return await second;
    } catch (error) {
      // On a slow machine, the first lease may end before its next holder begins.
      if (began || again === MOST_TRIES) throw error;
    }
  }
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
} satisfies Record<
  Exclude<keyof TestServices, 'latches' | 'answerCases' | 'close'>,
  InjectedService<{ readonly closed: boolean }>
>;

/**
 * Gives an instance that a unit test made with `new` what its decorated methods need: by default, locks and a cache in
 * memory that no other instance uses. To let instances exclude each other, give them the same services.
 *
 * @throws LockConfigError when the instance has no decorated method, has those of another copy of this package, or is
 * frozen
 */
export function wire<T extends object>(instance: T, services: Partial<TestServices> = testServices()): T {
  if (typeof instance !== 'object' || (instance as unknown) === null) {
    throw new LockConfigError(`wire() got ${inspect(instance)}; give it an instance of a class with decorated methods`);
  }
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
  for (const [name, { property }] of needed) {
    if (Reflect.set(instance, property, services[name as keyof TestServices])) continue;
    throw new LockConfigError(`An instance of ${instance.constructor.name} is frozen; wire it before`);
  }
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

/** What `Test.createTestingModule()` of `@nestjs/testing` returns, as far as it is needed. */
interface TestingBuilder {
  overrideProvider(token: unknown): {
    useFactory(options: {
      factory: (given: RedisLockModuleOptions) => Promise<ResolvedModuleOptions>;
      inject: unknown[];
    }): unknown;
  };
}

/**
 * Lets a test start an application that configures a server, without it:
 * `withoutServer(Test.createTestingModule({ imports: [AppModule] }))`. Locks, primitives and values are kept in memory,
 * those of each of the `backends` by itself; all other options of the application stay. `options` replace them.
 *
 * A factory of `forRootAsync` runs, and the backends that the options hold are closed. A client that the application
 * itself makes connects by itself.
 */
export function withoutServer<Builder extends TestingBuilder>(
  builder: Builder,
  options: Omit<RedisLockModuleOptions, 'redis'> = {},
): Builder {
  const remedy = 'what Test.createTestingModule(...) of @nestjs/testing returns, before its compile()';
  const { overrideProvider } = lockOption.object('builder', builder, remedy) as Partial<TestingBuilder>;
  lockOption.require(typeof overrideProvider === 'function', 'builder', builder, remedy);
  builder.overrideProvider(RESOLVED_OPTIONS).useFactory({
    inject: [MODULE_OPTIONS_TOKEN],
    factory: async (given) => {
      // A backend such as redis(url) connects when it is made, and no module will close it.
      const unused = [given.backend, ...Object.values(given.backends ?? {})];
      await Promise.allSettled(unused.map(async (backend) => backend?.close()));
      const { backend, backends } = { ...options };
      const settings = resolveModuleOptions({ ...inMemory(given), ...options });
      return { ...settings, alone: backend === undefined && backends === undefined };
    },
  });
  return builder;
}

/** The options, without what connects, and what only Redis takes: what changes values in memory sends messages. */
function inMemory({
  redis: _redis,
  fenceTtl: _fenceTtl,
  backends = {},
  cache,
  ...others
}: RedisLockModuleOptions): RedisLockModuleOptions {
  const { redis: _cacheRedis, l1, ...values } = cache || {};
  return {
    ...others,
    backend: memory(),
    backends: Object.fromEntries(Object.keys(backends).map((name) => [name, memory()])),
    cache: cache !== false && { ...values, ...(l1 && { l1: { ...l1, bus: 'pubsub' } }) },
  };
}
