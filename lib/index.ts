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
export { redis } from './backends/redis/redis-backend.js';
export type { RedisBackendOptions } from './backends/redis/redis-backend.js';
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
} from './cache/operations.js';
export type { CacheKeyInfo } from './cache/operations.js';
export type { CacheOperations } from './cache/operations.js';
export type { CacheReads } from './cache/operations.js';
export type { CacheWrites, CountArguments, CountOptions, SetOptions, SoftExpiryOptions } from './cache/operations.js';
export type {
  CacheEntryOptions,
  CacheLockOptions,
  CacheOptions,
  CompressionOptions,
  FirstLevelOptions,
  MemoryCacheOptions,
  ReadOptions,
} from './cache/options/cache-options.js';
export type { CachePipeline, PipelineExpiringSets, PipelineSets } from './cache/pipeline.js';
export type { CacheSerializer } from './cache/values/serializers.js';
export { CacheService } from './cache/cache.service.js';
export type { CacheStats } from './cache/store/cache-stats.js';
export type { BloomFilter, BloomFilterOptions } from './cache/store/bloom-filter.js';
export type { BloomRebuildOptions } from './cache/store/bloom-filter.js';
export type { IdSource } from './cache/store/bloom-filter.js';
export { instancesOf } from './cache/values/serializers.js';
export type { CacheExpiringSetOperations, CacheSetOperations } from './cache/sets.js';
export { typedSerializer } from './cache/values/serializers.js';
export type { CacheStoreProvider } from './contracts/cache-store.js';
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
export type { CheckedMethodDecorator } from './decorators/checked-method-decorator.types.js';
export { OnlyLeader, type OnlyLeaderOptions } from './decorators/only-leader.decorator.js';
export { ScheduledLock } from './decorators/scheduled-lock.decorator.js';
export type { PromiseMethod } from './decorators/method.types.js';
export type { EvictMoment } from './decorators/cache-evict.decorator.js';
export { CacheHeadersInterceptor, type CacheHeadersOptions } from './http/cache-headers.interceptor.js';
export { idempotencyKey } from './http/idempotency-key.interceptor.js';
export type { IdempotencyKeyOptions, IdempotentRequest } from './http/idempotency-key-options.js';
export type { OnBusy } from './decorators/distributed-lock.decorator.js';
export { Idempotent, type IdempotentOptions } from './decorators/idempotent.decorator.js';
export {
  IdempotencyConflictError,
  IdempotencyHeaderError,
  IdempotencyResultError,
  IdempotencyRunningError,
  type IdempotencyErrorCode,
} from './errors/idempotency-errors.js';
export type { IdempotencyAttempt } from './primitives/idempotency/idempotent-call.js';
export type { IdempotencyOptions, IdempotentRunOptions } from './primitives/idempotency/idempotency-options.js';
export { IdempotencyService } from './primitives/idempotency/idempotency.service.js';
export { hashKey } from './keys/hash-key.js';
export type { ListedLock, Lock, LockInfo, LockPage, LockWaiter } from './lock/hold/lock.js';
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
export { NotLeaderError } from './errors/primitive-errors.js';
export type { Elsewhere } from './decorators/only-leader.decorator.js';
export { LeaderElection, type LeaderInfo } from './primitives/leader/leader-election.js';
export type { CandidateOptions } from './primitives/leader/standing-candidacy.js';
export type { Candidacy, LeaderCallbacks, Leadership, LeadershipEnd } from './primitives/leader/leader-term.js';
export type { ScheduleOptions } from './primitives/schedule/schedule-options.js';
export { ScheduledJobs } from './primitives/schedule/scheduled-jobs.js';
export type { LastRun, ScheduledJobEvent } from './primitives/schedule/scheduled-jobs.js';
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
export type { Duration, EndlessDuration } from './options/checks.js';
export { CacheEvents } from './observability/events.js';
export type { EventStream, NamedEvent } from './observability/event-stream.js';
export { LockEvents } from './observability/events.js';
export { PrimitiveEvents } from './observability/events.js';
export type * from './observability/event-types.js';
export { RateLimit } from './decorators/rate-limit.decorator.js';
export type { LimitableMethod, LimitedCall, RateLimitedOptions } from './decorators/rate-limit.decorator.js';
export type { ClientKey, LimitedRequest } from './http/client-key.js';
export { RateLimitGuard } from './http/rate-limit.guard.js';
export { RateLimitPolicy, SkipRateLimit, type RateLimitPolicyOptions } from './http/rate-limit-policy.js';
export type { OnLimit } from './decorators/rate-limit.decorator.js';
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
export { LatchNotDefinedError, LatchTimeoutError } from './errors/primitive-errors.js';
export { PermitLostError, SemaphoreTimeoutError, type PermitLostReason } from './errors/primitive-errors.js';
export { CountDownLatch } from './primitives/latch/count-down-latch.js';
export type { LatchDefinition, LatchOptions, LatchWaitOptions } from './primitives/latch/latch-options.js';
export type { Permit } from './primitives/semaphore/held-permit.js';
export type { SemaphoreLookup, SemaphoreOptions } from './primitives/semaphore/semaphore-options.js';
export { SemaphoreService } from './primitives/semaphore/semaphore.service.js';
export { Semaphore, type NoPermitCall, type SemaphoreMethodOptions } from './decorators/semaphore.decorator.js';
export type { HoldableMethod } from './decorators/method.types.js';
export type { BusyMethodCall } from './decorators/holding.js';
export type { OnNoPermit } from './decorators/semaphore.decorator.js';
