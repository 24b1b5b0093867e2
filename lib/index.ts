export { RedisLockModule } from './redis-lock.module.js';
export type { RedisLockModuleOptions, RedisLockOptionsFactory } from './redis-lock.options.js';
export type { ListedLock, Lock, LockInfo, LockPage, LockWaiter } from './lock/hold/lock.js';
export { LockService } from './lock/lock.service.js';
export type { LockListOptions } from './lock/options/list-options.js';
export type { LockMode, LockOptions, RenewOptions } from './lock/options/lock-options.js';
export {
  exponentialBackoff,
  fixedDelay,
  limitedRetries,
  type RetryState,
  type RetryStrategy,
} from './lock/options/retry-strategy.js';
export { CacheService } from './cache/cache.service.js';
export type { BatchLoader, Loader, LoaderContext } from './cache/load/cache-loader.js';
export type {
  CacheKeyInfo,
  CacheOperations,
  CountOptions,
  DeleteMatchingOptions,
  DoubleDeleteOptions,
  InvalidateOptions,
  SetOptions,
  SoftExpiryOptions,
} from './cache/operations.js';
export type { CacheEntryOptions, CacheOptions, ReadOptions } from './cache/options/cache-options.js';
export type { CachePipeline, PipelineExpiringSets, PipelineSets } from './cache/pipeline.js';
export type { CacheExpiringSetOperations, CacheSetOperations } from './cache/sets.js';
export type { BloomFilter, BloomFilterOptions, BloomRebuildOptions, IdSource } from './cache/store/bloom-filter.js';
export type { CacheStats } from './cache/store/cache-stats.js';
export { instancesOf, typedSerializer, type CacheSerializer } from './cache/values/envelope.js';
export type { IdempotencyOptions, IdempotentRunOptions } from './primitives/idempotency/idempotency-options.js';
export { IdempotencyService } from './primitives/idempotency/idempotency.service.js';
export type { IdempotencyAttempt } from './primitives/idempotency/idempotent-call.js';
export { CountDownLatch } from './primitives/latch/count-down-latch.js';
export type { LatchDefinition, LatchOptions, LatchWaitOptions } from './primitives/latch/latch-options.js';
export { LeaderElection, type LeaderInfo } from './primitives/leader/leader-election.js';
export type { Candidacy, LeaderCallbacks, Leadership, LeadershipEnd } from './primitives/leader/leader-term.js';
export type { CandidateOptions } from './primitives/leader/standing-candidacy.js';
export type { RateLimitDecision, RateLimitState } from './primitives/rate-limit/rate-limit-decision.js';
export type { RateLimitOptions, TakeOptions } from './primitives/rate-limit/rate-limit-options.js';
export { RateLimiter } from './primitives/rate-limit/rate-limiter.js';
export type { ThrottlerCounts } from './primitives/rate-limit/throttler-counts.js';
export type { ScheduleOptions } from './primitives/schedule/schedule-options.js';
export { ScheduledJobs, type LastRun, type ScheduledJobEvent } from './primitives/schedule/scheduled-jobs.js';
export type { Permit } from './primitives/semaphore/held-permit.js';
export type { SemaphoreOptions } from './primitives/semaphore/semaphore-options.js';
export { SemaphoreService } from './primitives/semaphore/semaphore.service.js';
export { CacheEvict, type CacheEvictOptions } from './decorators/cache-evict.decorator.js';
export { CachePut, type CachePutOptions } from './decorators/cache-put.decorator.js';
export { Cached, type CachedOptions } from './decorators/cached.decorator.js';
export type { CheckedMethodDecorator } from './decorators/checked-method-decorator.types.js';
export { DistributedLock, type DistributedLockOptions } from './decorators/distributed-lock.decorator.js';
export type { BusyCall } from './decorators/holding.js';
export { Idempotent, type IdempotentOptions } from './decorators/idempotent.decorator.js';
export { OnlyLeader, type OnlyLeaderOptions } from './decorators/only-leader.decorator.js';
export { RateLimit, type LimitedCall, type RateLimitedOptions } from './decorators/rate-limit.decorator.js';
export { ScheduledLock } from './decorators/scheduled-lock.decorator.js';
export { Semaphore, type SemaphoreMethodOptions } from './decorators/semaphore.decorator.js';
export { CacheHeadersInterceptor, type CacheHeadersOptions } from './http/cache-headers.interceptor.js';
export type { ClientKey, LimitedRequest } from './http/client-key.js';
export type { IdempotencyKeyOptions, IdempotentRequest } from './http/idempotency-key-options.js';
export { idempotencyKey } from './http/idempotency-key.interceptor.js';
export { RateLimitPolicy, SkipRateLimit, type RateLimitPolicyOptions } from './http/rate-limit-policy.js';
export { RateLimitGuard } from './http/rate-limit.guard.js';
export { CacheEvents, LockEvents, PrimitiveEvents } from './observability/events.js';
export {
  CacheBackendError,
  CacheConfigError,
  CacheError,
  CacheKeyError,
  CacheNotWiredError,
  CacheTimeoutError,
} from './errors/cache-errors.js';
export {
  IdempotencyConflictError,
  IdempotencyHeaderError,
  IdempotencyResultError,
  IdempotencyRunningError,
} from './errors/idempotency-errors.js';
export {
  LockBackendError,
  LockConfigError,
  LockError,
  LockKeyError,
  LockLostError,
  LockNotWiredError,
  LockReplicationError,
  LockTimeoutError,
  LockUpgradeError,
  type LockLostReason,
} from './errors/lock-errors.js';
export {
  LatchNotDefinedError,
  LatchTimeoutError,
  NotLeaderError,
  PermitLostError,
  PrimitiveBackendError,
  PrimitiveConfigError,
  PrimitiveError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RateLimitExceededError,
  SemaphoreTimeoutError,
  type PermitLostReason,
} from './errors/primitive-errors.js';
export type { Duration } from './options/checks.js';
export type { NodeRedisConnection, RedisConnection } from './options/redis-connection.js';
export { hashKey } from './keys/hash-key.js';
export { memory } from './backends/memory/memory-lock-backend.js';
export { redis, type RedisBackendOptions } from './backends/redis/redis-backend.js';
export type { LockBackend } from './contracts/lock-backend.js';
export { BackendRefusal } from './contracts/store.js';
