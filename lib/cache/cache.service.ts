import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { BloomFilter, type BloomFilterOptions } from './bloom/bloom-filter.js';
import { CacheOperations } from './api/cache-operations.js';
import { CacheRuntime } from './cache-runtime.js';
import type { CacheStats } from './store/cache-stats.js';

/**
 * Cached values: read through, invalidated, and kept in Redis and, where the module says so, in the memory of the
 * process.
 */
@Injectable()
export class CacheService extends CacheOperations implements OnModuleInit {
  /** @internal */
  constructor(@Inject(CacheRuntime) private readonly runtime: CacheRuntime) {
    super(() => runtime.engine(), '');
  }

  /**
   * A filter that knows which ids there are not, over plain bits in Redis; of one name and capacity, it is the same in
   * every process.
   *
   * @throws CacheConfigError for an option it cannot take
   */
  bloomFilter(name: string, options: BloomFilterOptions): BloomFilter {
    return new BloomFilter(name, options, this.engineOf().calls);
  }

  /** What has happened since the application began. */
  stats(): CacheStats {
    return this.engineOf().stats();
  }

  /** @internal Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  /** @internal */
  onModuleInit(): void {
    this.runtime.boot();
  }
}
