export type {
  AcquireAnswer,
  AcquireRequest,
  BeatRequest,
  Busy,
  EnqueueRequest,
  Granted,
  LockBackend,
  KeepRequest,
  LabelRequest,
  ListedNames,
  ListRequest,
  LockQueue,
  LockState,
  LockTraits,
  Minted,
  MintRequest,
  NameRequest,
  Notice,
  Pending,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
  RequeueRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
  WaiterRequest,
  WaitingTicket,
} from './contracts/lock-backend.js';
export { memory } from './backends/memory/memory-lock-backend.js';
export type { NodeRedisConnection, RedisConnection } from './options/redis-connection.js';
export { redis } from './backends/redis/locks/redis-lock-backend.js';
export type { RedisBackendOptions } from './backends/redis/locks/redis-backend-options.js';
export {
  CacheBackendError,
  CacheConfigError,
  CacheError,
  CacheKeyError,
  CacheNotWiredError,
  CacheTimeoutError,
  type CacheErrorCode,
} from './errors/cache-errors.js';
export type { BatchLoader, Loader, LoaderContext } from './cache/load/cache-loader.js';
export type {
  CacheDeletions,
  DeleteMatchingOptions,
  DoubleDeleteOptions,
  InvalidateOptions,
} from './cache/api/cache-deletions.js';
export type { CacheKeyInfo } from './cache/api/cache-key-info.js';
export type { CacheOperations } from './cache/api/cache-operations.js';
export type { CacheReads } from './cache/api/cache-reads.js';
export type {
  CacheWrites,
  CountArguments,
  CountOptions,
  SetOptions,
  SoftExpiryOptions,
} from './cache/api/cache-writes.js';
export type {
  CacheEntryOptions,
  CacheLockOptions,
  CacheOptions,
  CompressionOptions,
  FirstLevelOptions,
  MemoryCacheOptions,
  ReadOptions,
} from './cache/options/cache-options.js';
export type { CachePipeline, PipelineExpiringSets, PipelineSets } from './cache/api/cache-pipeline.js';
export type { CacheSerializer } from './cache/values/cache-serializer.js';
export { CacheService } from './cache/cache.service.js';
export type { CacheStats } from './cache/store/cache-stats.js';
export type { BloomFilter, BloomFilterOptions } from './cache/bloom/bloom-filter.js';
export type { BloomRebuildOptions } from './cache/bloom/bloom-rebuild.js';
export type { IdSource } from './cache/bloom/id-source.js';
export { instancesOf } from './cache/values/instances-of.js';
export type { CacheExpiringSetOperations, CacheSetOperations } from './cache/api/set-operations.js';
export { typedSerializer } from './cache/values/typed-serializer.js';
export type { CacheStoreProvider } from './contracts/cache-store-provider.js';
export type {
  BitsRequest,
  CacheBits,
  CacheExpiringSets,
  CacheListener,
  CacheSets,
  CacheStore,
  CacheTracker,
  CommitRequest,
  DeleteMatchingRequest,
  InvalidateRequest,
  KeyRequest,
  KeyState,
  LeaseAnswer,
  LeaseRequest,
  LoadRequest,
  RebuildRequest,
  ScheduledDeletions,
  SetRequest,
  StoredData,
  StoredValueState,
  TagState,
  TagVersion,
} from './contracts/cache-store.js';
export { CacheEvict, type CacheEvictOptions } from './decorators/cache-evict.decorator.js';
export { CachePut, type CachePutOptions } from './decorators/cache-put.decorator.js';
export { Cached, type CachedOptions } from './decorators/cached.decorator.js';
export {
  DistributedLock,
  type BusyCall,
  type DistributedLockOptions,
  type LockableMethod,
} from './decorators/distributed-lock.decorator.js';
export { OnlyLeader, type OnlyLeaderOptions } from './decorators/primitives/only-leader.decorator.js';
export { ScheduledLock } from './decorators/primitives/scheduled-lock.decorator.js';
export type { PromiseMethod } from './decorators/method.types.js';
export type { EvictMoment } from './interceptors/cache-evict.interceptor.js';
export { CacheHeadersInterceptor, type CacheHeadersOptions } from './interceptors/http/cache-headers.interceptor.js';
export { idempotencyKey } from './interceptors/http/idempotency-key.interceptor.js';
export type { IdempotencyKeyOptions, IdempotentRequest } from './interceptors/http/idempotency-key-options.js';
export type { OnBusy } from './interceptors/distributed-lock.interceptor.js';
export { Idempotent, type IdempotentOptions } from './decorators/idempotent.decorator.js';
export {
  IdempotencyConflictError,
  IdempotencyHeaderError,
  IdempotencyResultError,
  IdempotencyRunningError,
  type IdempotencyErrorCode,
} from './errors/idempotency-errors.js';
export type { IdempotencyAttempt } from './primitives/idempotency/idempotency-attempt.js';
export type { IdempotencyOptions, IdempotentRunOptions } from './primitives/idempotency/idempotency-options.js';
export { IdempotencyService } from './primitives/idempotency/idempotency.service.js';
export { hashKey } from './keys/hash-key.js';
export type { ListedLock, Lock, LockInfo, LockPage, LockWaiter } from './lock/lock.js';
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
  type LockErrorCode,
  type LockLostReason,
} from './errors/lock-errors.js';
export { NotLeaderError } from './errors/leader-errors.js';
export type { Elsewhere } from './interceptors/only-leader.interceptor.js';
export { LeaderElection, type LeaderInfo } from './primitives/leader/leader-election.js';
export type { CandidateOptions } from './primitives/leader/leader-options.js';
export type { Candidacy, LeaderCallbacks, Leadership, LeadershipEnd } from './primitives/leader/leadership.js';
export type { ScheduleOptions } from './primitives/schedule/schedule-options.js';
export { ScheduledJobs } from './primitives/schedule/scheduled-jobs.js';
export type { LastRun, ScheduledJobEvent } from './primitives/schedule/scheduled-run.js';
export {
  PrimitiveBackendError,
  PrimitiveConfigError,
  PrimitiveError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RateLimitExceededError,
  type PrimitiveErrorCode,
} from './errors/primitive-errors.js';
export type { LockMode, LockOptions, RenewOptions } from './lock/options/lock-options.js';
export { LockService } from './lock/lock.service.js';
export {
  exponentialBackoff,
  fixedDelay,
  limitedRetries,
  type RetryDelays,
  type RetryState,
  type RetryStrategy,
} from './lock/options/retry-strategy.js';
export type { LockListOptions } from './lock/options/list-options.js';
export type { Duration, EndlessDuration } from './options/duration.js';
export { CacheEvents } from './observability/cache-events.js';
export type { EventStream, NamedEvent } from './observability/event-stream.js';
export { LockEvents } from './observability/lock-events.js';
export { PrimitiveEvents } from './observability/primitive-events.js';
export type * from './observability/event-types.js';
export { RateLimit } from './decorators/primitives/rate-limit.decorator.js';
export type { LimitableMethod, LimitedCall, RateLimitedOptions } from './decorators/primitives/rate-limit.decorator.js';
export type { ClientKey, LimitedRequest } from './interceptors/http/client-key.js';
export { RateLimitGuard } from './interceptors/http/rate-limit.guard.js';
export { RateLimitPolicy, SkipRateLimit, type RateLimitPolicyOptions } from './interceptors/http/rate-limit-policy.js';
export type { OnLimit } from './interceptors/primitives/rate-limit.interceptor.js';
export type { DecidedBy, RateLimitDecision, RateLimitState } from './primitives/rate-limit/rate-limit-decision.js';
export type {
  OneRateLimit,
  OnRateLimitFailure,
  RateLimitOptions,
  RateLimitRule,
  SeveralRateLimits,
  TakeOptions,
} from './primitives/rate-limit/rate-limit-options.js';
export { RateLimiter } from './primitives/rate-limit/rate-limiter.js';
export type {
  ThrottlerCount,
  ThrottlerCounts,
  ThrottlerCountsOptions,
} from './primitives/rate-limit/throttler-counts.js';
export { RedisLockModule } from './redis-lock.module.js';
export type { RedisLockModuleOptions, RedisLockOptionsFactory } from './redis-lock.options.js';
export { LatchNotDefinedError, LatchTimeoutError } from './errors/latch-errors.js';
export { PermitLostError, SemaphoreTimeoutError, type PermitLostReason } from './errors/semaphore-errors.js';
export { CountDownLatch } from './primitives/latch/count-down-latch.js';
export type { LatchDefinition, LatchOptions, LatchWaitOptions } from './primitives/latch/latch-options.js';
export type { Permit } from './primitives/semaphore/permit.js';
export type { SemaphoreLookup, SemaphoreOptions } from './primitives/semaphore/semaphore-options.js';
export { SemaphoreService } from './primitives/semaphore/semaphore.service.js';
export {
  Semaphore,
  type NoPermitCall,
  type SemaphoreMethodOptions,
} from './decorators/primitives/semaphore.decorator.js';
export type { HoldableMethod } from './decorators/holding/holdable-method.types.js';
export type { BusyMethodCall } from './interceptors/holding.interceptor.js';
export type { OnNoPermit } from './interceptors/semaphore.interceptor.js';
