import type { PrimitiveStores } from '../../../contracts/primitives/primitive-stores.js';
import type { RateLimitStore } from '../../../contracts/primitives/rate-limit-store.js';
import type { RunRecords } from '../../../contracts/primitives/run-records.js';
import type { RedisLink } from '../redis-link.js';
import { RedisIdempotencyStore } from './idempotency/redis-idempotency-store.js';
import { RedisLatchStore } from './latch/redis-latch-store.js';
import { primitiveChannels } from './primitive-key.js';
import { RedisPrimitiveChannel } from './redis-primitive-channel.js';
import { RedisRateLimitStore } from './rate-limit/redis-rate-limit-store.js';
import { RedisRunRecords } from './schedule/redis-run-records.js';
import { RedisSemaphoreStore } from './semaphore/redis-semaphore-store.js';

/** The stores of the primitives on Redis, on the connection of the locks. */
export class RedisPrimitiveStores implements PrimitiveStores {
  readonly runs: RunRecords;
  readonly semaphores: RedisSemaphoreStore;
  readonly latches: RedisLatchStore;
  private readonly channel: RedisPrimitiveChannel;
  readonly results: RedisIdempotencyStore;
  readonly rateLimits: RateLimitStore;

  constructor(
    protected readonly link: RedisLink,
    protected readonly prefix: string | undefined,
  ) {
    this.runs = new RedisRunRecords(link.scripts, prefix);
    this.channel = new RedisPrimitiveChannel(link, primitiveChannels(prefix));
    this.semaphores = new RedisSemaphoreStore(link, prefix, this.channel);
    this.latches = new RedisLatchStore(link, prefix, this.channel);
    this.results = new RedisIdempotencyStore(link, prefix);
    this.rateLimits = new RedisRateLimitStore(link.scripts, prefix);
  }

  async close(): Promise<void> {
    this.channel.close();
  }
}
