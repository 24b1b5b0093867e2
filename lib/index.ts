export type {
  AcquireAnswer,
  AcquireRequest,
  EnqueueRequest,
  LockBackend,
  LockBackendCapabilities,
  KeepRequest,
  LabelRequest,
  LockQueue,
  LockState,
  NameRequest,
  Notice,
  Pending,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  RequeueRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
  WaiterRequest,
} from './contracts/lock-backend.js';
export { memory } from './backends/memory/memory-lock-backend.js';
export type { RedisConnection } from './options/redis-connection.js';
export { redis, type RedisBackendOptions } from './backends/redis/locks/redis-lock-backend.js';
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
export type { CacheDeletions, DeleteMatchingOptions, InvalidateOptions } from './cache/api/cache-deletions.js';
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
export type { EndlessDuration } from './options/duration.js';
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
  LeaseAnswer,
  LeaseRequest,
  LoadRequest,
  RebuildRequest,
  ScheduledDeletions,
  SetRequest,
  StoredData,
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
export type { PromiseMethod } from './decorators/method.types.js';
export type { EvictMoment } from './interceptors/cache-evict.interceptor.js';
export { CacheHeadersInterceptor, type CacheHeadersOptions } from './interceptors/http/cache-headers.interceptor.js';
export type { OnBusy } from './interceptors/distributed-lock.interceptor.js';
export { hashKey } from './keys/hash-key.js';
export type { Lock, LockInfo } from './lock/lock.js';
export {
  LockBackendError,
  LockConfigError,
  LockError,
  LockKeyError,
  LockLostError,
  LockNotWiredError,
  LockTimeoutError,
  type LockErrorCode,
  type LockLostReason,
} from './errors/lock-errors.js';
export type { LockOptions, RenewOptions } from './lock/options/lock-options.js';
export { LockService } from './lock/lock.service.js';
export {
  exponentialBackoff,
  fixedDelay,
  limitedRetries,
  type RetryDelays,
  type RetryState,
  type RetryStrategy,
} from './lock/options/retry-strategy.js';
export type { Duration } from './options/duration.js';
export { RedisLockModule } from './redis-lock.module.js';
export type { RedisLockModuleOptions, RedisLockOptionsFactory } from './redis-lock.options.js';
