import type { Type } from '@nestjs/common';
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
