import type { CachePipeline } from './cache-pipeline.js';
import type { CacheExpiringSetOperations, CacheSetOperations } from './set-operations.js';

/** `sets` of the cache, in a pipeline. */
export class PipelineSets<Results extends unknown[]> {
  /** @internal */
  constructor(
    private readonly pipeline: CachePipeline<Results>,
    private readonly sets: CacheSetOperations,
  ) {}

  /** `sets.add` of the cache. */
  add(...given: Parameters<CacheSetOperations['add']>): CachePipeline<[...Results, number]> {
    return this.pipeline.with(() => this.sets.add(...given));
  }

  /** `sets.remove` of the cache. */
  remove(...given: Parameters<CacheSetOperations['remove']>): CachePipeline<[...Results, number]> {
    return this.pipeline.with(() => this.sets.remove(...given));
  }

  /** `sets.has` of the cache. */
  has(key: string, member: string): CachePipeline<[...Results, boolean]> {
    return this.pipeline.with(() => this.sets.has(key, member));
  }

  /** `sets.members` of the cache. */
  members(key: string): CachePipeline<[...Results, readonly string[]]> {
    return this.pipeline.with(() => this.sets.members(key));
  }
}

/** `expiringSet` of the cache, in a pipeline. */
export class PipelineExpiringSets<Results extends unknown[]> {
  /** @internal */
  constructor(
    private readonly pipeline: CachePipeline<Results>,
    private readonly sets: CacheExpiringSetOperations,
  ) {}

  /** `expiringSet.add` of the cache. */
  add(...given: Parameters<CacheExpiringSetOperations['add']>): CachePipeline<[...Results, number]> {
    return this.pipeline.with(() => this.sets.add(...given));
  }

  /** `expiringSet.remove` of the cache. */
  remove(...given: Parameters<CacheExpiringSetOperations['remove']>): CachePipeline<[...Results, number]> {
    return this.pipeline.with(() => this.sets.remove(...given));
  }

  /** `expiringSet.has` of the cache. */
  has(key: string, member: string): CachePipeline<[...Results, boolean]> {
    return this.pipeline.with(() => this.sets.has(key, member));
  }

  /** `expiringSet.members` of the cache. */
  members(key: string): CachePipeline<[...Results, readonly string[]]> {
    return this.pipeline.with(() => this.sets.members(key));
  }

  /** `expiringSet.size` of the cache. */
  size(key: string): CachePipeline<[...Results, number]> {
    return this.pipeline.with(() => this.sets.size(key));
  }
}
