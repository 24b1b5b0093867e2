import type { Provider, Type } from '@nestjs/common';
import { OnlyLeaderCandidates } from './interceptors/wiring/only-leader-candidates.js';
import { LockBackends } from './lock/backend/lock-backends.js';
import { CountDownLatch } from './primitives/latch/count-down-latch.js';
import { IdempotencyService } from './primitives/idempotency/idempotency.service.js';
import { MemoryRateLimitStore } from './backends/memory/primitives/memory-rate-limit-store.js';
import { LeaderElection } from './primitives/leader/leader-election.js';
import { PrimitiveRuntime } from './primitives/primitive-runtime.js';
import { LOCAL_RATE_LIMITS, RateLimiter } from './primitives/rate-limit/rate-limiter.js';
import { ScheduledJobs } from './primitives/schedule/scheduled-jobs.js';
import { SemaphoreService } from './primitives/semaphore/semaphore.service.js';

/** The services of the primitives, which applications inject. */
export const PRIMITIVE_SERVICES: readonly Type[] = [
  ScheduledJobs,
  LeaderElection,
  CountDownLatch,
  SemaphoreService,
  IdempotencyService,
  RateLimiter,
];

/** What the module provides for the primitives. */
export const PRIMITIVE_PROVIDERS: readonly Provider[] = [
  {
    provide: PrimitiveRuntime,
    inject: [LockBackends],
    useFactory: (backends: LockBackends) => new PrimitiveRuntime(backends),
  },
  { provide: LOCAL_RATE_LIMITS, useValue: () => new MemoryRateLimitStore() },
  ...PRIMITIVE_SERVICES,
  OnlyLeaderCandidates,
];
