import type { Type } from '@nestjs/common';
import type { Observable } from 'rxjs';
import { CacheService } from '../cache/cache.service.js';
import { CacheConfigError, CacheNotWiredError } from '../errors/cache-errors.js';
import { LockConfigError, LockNotWiredError } from '../errors/lock-errors.js';
import { PrimitiveConfigError, PrimitiveNotWiredError } from '../errors/primitive-errors.js';
import { LockService } from '../lock/lock.service.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { LeaderElection } from '../primitives/leader/leader-election.js';
import { RateLimiter } from '../primitives/rate-limit/rate-limiter.js';
import { ScheduledJobs } from '../primitives/schedule/scheduled-jobs.js';
import { SemaphoreService } from '../primitives/semaphore/semaphore.service.js';

/** One call of a decorated method, with the method's own arguments. */
export interface MethodCall {
  readonly instance: object;
  /** `Class.method`, for messages. */
  readonly name: string;
  readonly args: readonly unknown[];
  /** Runs the method. */
  proceed(): unknown;
  /** The method below all decorators of this library. */
  readonly method: object;
  /**
   * Has a function of the arguments answer in the place of the method. Where the method is a route handler that answers
   * by `@Res()` or `@Next()`, so must the function.
   *
   * @throws ConfigError when it has not
   */
  answerBy(react: (args: readonly unknown[]) => unknown): unknown;
}

/**
 * Around-advice of a decorated method. Not a `NestInterceptor`, because those never see the methods of services, and
 * get the request and response instead of the arguments.
 */
export interface MethodInterceptor {
  /**
   * Calls that the interceptor answers with a value in the place of the method, such as 'a repeat', if there are any.
   * It cannot stand on a route handler that answers by `@Res()` or `@Next()`: nobody would send the value.
   */
  readonly mayAnswer?: string | undefined;
  /** For a method that returns a promise. */
  interceptPromise(call: MethodCall): Promise<unknown>;
  /** For a method that is declared to return an Observable. Absent if the decorator cannot stand on such a method. */
  interceptObservable?(call: MethodCall): Observable<unknown>;
}

/** A service that decorated methods find on their instance. */
export interface InjectedService<Service> {
  /** The property of the instance: a symbol, so that it shadows no property of the class. */
  readonly property: symbol;
  readonly token: Type<Service>;
  /** The decorators that need it. */
  readonly decorators: string;
  /** What to use instead if Nest cannot inject it. */
  readonly instead: string;
  /** The method that the decorators call, where a mock may lack it. */
  readonly method: string | undefined;
  readonly ConfigError: new (message: string) => Error;
  readonly NotWiredError: new (message: string) => Error;
}

export const LOCKS: InjectedService<LockService> = {
  property: Symbol.for('nest-redis-lock:lock-service'),
  token: LockService,
  decorators: '@DistributedLock',
  instead: 'LockService.withLock()',
  method: 'withLock' satisfies keyof LockService,
  ConfigError: LockConfigError,
  NotWiredError: LockNotWiredError,
};

export const CACHE: InjectedService<CacheService> = {
  property: Symbol.for('nest-redis-lock:cache-service'),
  token: CacheService,
  decorators: '@Cached, @CacheEvict or @CachePut',
  instead: 'CacheService itself',
  method: undefined,
  ConfigError: CacheConfigError,
  NotWiredError: CacheNotWiredError,
};

/** The errors of the services below, which are all primitives. */
const PRIMITIVE = { ConfigError: PrimitiveConfigError, NotWiredError: PrimitiveNotWiredError };

export const JOBS: InjectedService<ScheduledJobs> = {
  property: Symbol.for('nest-redis-lock:scheduled-jobs'),
  token: ScheduledJobs,
  decorators: '@ScheduledLock',
  instead: 'ScheduledJobs.run()',
  method: 'run' satisfies keyof ScheduledJobs,
  ...PRIMITIVE,
};

export const IDEMPOTENCY: InjectedService<IdempotencyService> = {
  property: Symbol.for('nest-redis-lock:idempotency-service'),
  token: IdempotencyService,
  decorators: '@Idempotent',
  instead: 'IdempotencyService.run()',
  method: 'run' satisfies keyof IdempotencyService,
  ...PRIMITIVE,
};

export const LEADERS: InjectedService<LeaderElection> = {
  property: Symbol.for('nest-redis-lock:leader-election'),
  token: LeaderElection,
  decorators: '@OnlyLeader',
  instead: 'LeaderElection.join()',
  method: 'candidacyFor' satisfies keyof LeaderElection,
  ...PRIMITIVE,
};

export const SEMAPHORES: InjectedService<SemaphoreService> = {
  property: Symbol.for('nest-redis-lock:semaphore-service'),
  token: SemaphoreService,
  decorators: '@Semaphore',
  instead: 'SemaphoreService.withPermit()',
  method: 'withPermit' satisfies keyof SemaphoreService,
  ...PRIMITIVE,
};

export const RATE_LIMITS: InjectedService<RateLimiter> = {
  property: Symbol.for('nest-redis-lock:rate-limiter'),
  token: RateLimiter,
  decorators: '@RateLimit',
  instead: 'RateLimiter.take()',
  method: 'take' satisfies keyof RateLimiter,
  ...PRIMITIVE,
};

/** All of them; each service has `closed`: whether its application has ended. */
export const INJECTED: readonly InjectedService<{ readonly closed: boolean }>[] = [
  LOCKS,
  CACHE,
  JOBS,
  LEADERS,
  SEMAPHORES,
  IDEMPOTENCY,
  RATE_LIMITS,
];

/** @throws NotWiredError when Nest did not create the instance */
export function serviceOf<Service>(injected: InjectedService<Service>, call: MethodCall): Service {
  const { property, token, instead, method, NotWiredError } = injected;
  const instance: unknown = call.instance;
  // The class has the property, and so have its instances.
  const isInstance = typeof instance === 'object' && instance !== null && property in instance;
  const service = isInstance ? (instance as Record<symbol, Service | undefined>)[property] : undefined;
  if (!service) {
    if (!isInstance) throw new NotWiredError(withoutInstance(call));
    throw new NotWiredError(
      `${call.name} did not run: its instance has no ${token.name}. Let Nest create it as a provider or controller of an ` +
        'application that imports RedisLockModule (or RedisLockTestingModule). An instance of a factory (useFactory) or ' +
        'a value (useValue) gets it when the application initialises, unless it is request-scoped, in a lazily loaded ' +
        `module, or inside another object; there, use ${instead}; in a test, wire() of nest-redis-lock/testing`,
    );
  }
  if (method !== undefined && typeof (service as Record<string, unknown>)[method] !== 'function')
    throw mockedService(injected, call);
  return service;
}

function withoutInstance({ name, instance }: MethodCall): string {
  const method = name.slice(name.lastIndexOf('.') + 1);
  const found = instance === undefined ? 'without its instance' : 'on another object';
  return (
    `${name} did not run: it was called ${found}, as happens to a method that is passed on (map(shop.${method}), ` +
    `const { ${method} } = shop). Call it on its instance, as in map((each) => shop.${method}(each)), or pass on ` +
    `shop.${method}.bind(shop)`
  );
}

/** The error for a mocked service that returned without calling the method. */
export function mockedService({ token, NotWiredError }: InjectedService<unknown>, { name }: MethodCall): Error {
  return new NotWiredError(
    `${name} did not run: its ${token.name} is a mock that did not call the function it was given. Import ` +
      `RedisLockTestingModule instead of mocking ${token.name}, or let the mock call that function`,
  );
}
