import type { CacheDeletions } from './cache-deletions.js';
import type { CachePipeline } from './cache-pipeline.js';
import type { CacheWrites } from './cache-writes.js';
import type { CacheExpiringSetOperations, CacheSetOperations } from './set-operations.js';

/** The operations of the cache on keys that begin with one prefix. */
export interface CacheOperations extends CacheWrites, CacheDeletions {
  readonly sets: CacheSetOperations;
  readonly expiringSet: CacheExpiringSetOperations;

  /** The same operations on keys that begin with `name:`, after the prefix of this one. */
  namespace(name: string): CacheOperations;

  /** Gathers operations and sends them together: `await cache.pipeline().get('a').incr('n', { ttl: '1d' }).exec()`. */
  pipeline(): CachePipeline;
}
