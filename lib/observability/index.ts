export type { EventStream, NamedEvent } from './event-stream.js';
export type {
  CacheBreakerClosed,
  CacheBreakerOpened,
  CacheCommitRefused,
  CacheConfirmed,
  CacheEventTypes,
  CacheHit,
  CacheInvalidate,
  CacheLoad,
  CacheLoadStarted,
  CacheMiss,
  CacheRefreshFailed,
  CacheUnconfirmed,
} from '../events/cache-channels.js';
export type {
  LockAcquired,
  LockAttempt,
  LockCall,
  LockContended,
  LockEventTypes,
  LockFailed,
  LockHandedOver,
  LockLost,
  LockReleased,
  LockReleasedLate,
  LockRenewed,
  LockRenewFailed,
  LockSource,
  LockTimedOut,
} from '../events/lock-channels.js';
export type {
  IdempotencyBusy,
  IdempotencyConflict,
  IdempotencyEvent,
  IdempotencyEventTypes,
  IdempotencyFailed,
  IdempotencyRan,
  IdempotencyRepeated,
  IdempotencyUnavailable,
} from '../events/idempotency-channels.js';
export type {
  LatchCountedDown,
  LatchEvent,
  LatchEventTypes,
  LatchFailed,
  LatchOpened,
  LatchTimedOut,
} from '../events/latch-channels.js';
export type {
  LeaderElected,
  LeaderEvent,
  LeaderEventTypes,
  LeaderJoined,
  LeaderLeft,
  LeaderLost,
  LeaderResigned,
} from '../events/leader-channels.js';
export type {
  RateLimitAllowed,
  RateLimitDecided,
  RateLimitEvent,
  RateLimitEventTypes,
  RateLimitFailed,
  RateLimitRefused,
} from '../events/rate-limit-channels.js';
export type {
  ScheduleEvent,
  ScheduleEventTypes,
  ScheduleFailed,
  ScheduleSkipped,
  ScheduleStarted,
  ScheduleSucceeded,
  ScheduleUnavailable,
} from '../events/schedule-channels.js';
export type {
  SemaphoreAcquired,
  SemaphoreAttempt,
  SemaphoreCall,
  SemaphoreContended,
  SemaphoreEventTypes,
  SemaphoreFailed,
  SemaphoreLost,
  SemaphoreReleased,
  SemaphoreTimedOut,
} from '../events/semaphore-channels.js';
