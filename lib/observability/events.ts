import { Injectable, Logger } from '@nestjs/common';
import { LimitedLog } from '../errors/limited-log.js';
import { cacheChannels, type CacheEventTypes } from '../events/cache-channels.js';
import { idempotencyChannels, type IdempotencyEventTypes } from '../events/idempotency-channels.js';
import { latchChannels, type LatchEventTypes } from '../events/latch-channels.js';
import { leaderChannels, type LeaderEventTypes } from '../events/leader-channels.js';
import { lockChannels, type LockEventTypes } from '../events/lock-channels.js';
import { rateLimitChannels, type RateLimitEventTypes } from '../events/rate-limit-channels.js';
import { scheduleChannels, type ScheduleEventTypes } from '../events/schedule-channels.js';
import { semaphoreChannels, type SemaphoreEventTypes } from '../events/semaphore-channels.js';
import { EventStream } from './event-stream.js';

/** What happens in the caches of this process. Provided by `RedisLockModule`. */
@Injectable()
export class CacheEvents extends EventStream<CacheEventTypes> {
  /** @internal */
  constructor() {
    super(cacheChannels, new LimitedLog(new Logger('RedisLock')));
  }
}

/** What happens to the locks of this process. Provided by `RedisLockModule`. */
@Injectable()
export class LockEvents extends EventStream<LockEventTypes> {
  /** @internal */
  constructor() {
    super(lockChannels, new LimitedLog(new Logger('RedisLock')));
  }
}

/** What happens to the primitives of this process. Provided by `RedisLockModule`. */
@Injectable()
export class PrimitiveEvents {
  /** What happens to semaphores. */
  readonly semaphores: EventStream<SemaphoreEventTypes>;
  /** What happens to latches. */
  readonly latches: EventStream<LatchEventTypes>;
  /** What happens to scheduled jobs. */
  readonly schedules: EventStream<ScheduleEventTypes>;
  /** What happens to calls with an idempotency key. */
  readonly idempotency: EventStream<IdempotencyEventTypes>;
  /** How calls with a rate limit are decided. */
  readonly rateLimits: EventStream<RateLimitEventTypes>;
  /** What happens to the candidates for leaderships. */
  readonly leaders: EventStream<LeaderEventTypes>;

  /** @internal */
  constructor() {
    const logger = new LimitedLog(new Logger('RedisLock'));
    this.semaphores = new EventStream(semaphoreChannels, logger);
    this.latches = new EventStream(latchChannels, logger);
    this.schedules = new EventStream(scheduleChannels, logger);
    this.idempotency = new EventStream(idempotencyChannels, logger);
    this.rateLimits = new EventStream(rateLimitChannels, logger);
    this.leaders = new EventStream(leaderChannels, logger);
  }
}
