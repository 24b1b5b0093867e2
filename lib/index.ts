export type {
  AcquireAnswer,
  AcquireRequest,
  EnqueueRequest,
  LockBackend,
  LockBackendCapabilities,
  LockQueue,
  LockState,
  NameRequest,
  Pending,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  RequeueRequest,
  TicketRequest,
  TokenRange,
  WaiterRequest,
} from './backends/lock-backend.js';
export { memory } from './backends/memory/memory-lock-backend.js';
export type { RedisConnection } from './backends/redis/redis-client.js';
export { redis } from './backends/redis/redis-lock-backend.js';
export {
  DistributedLock,
  type BusyCall,
  type DistributedLockOptions,
  type LockableMethod,
} from './decorators/distributed-lock.decorator.js';
export type { OnBusy } from './interceptors/distributed-lock.interceptor.js';
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
} from './lock/lock-errors.js';
export type { LockOptions } from './lock/lock-options.js';
export { LockService } from './lock/lock.service.js';
export {
  exponentialBackoff,
  fixedDelay,
  limitedRetries,
  type RetryDelays,
  type RetryState,
  type RetryStrategy,
} from './lock/retry-strategy.js';
export { RedisLockModule } from './redis-lock.module.js';
export type { RedisLockModuleOptions, RedisLockOptionsFactory } from './redis-lock.options.js';
