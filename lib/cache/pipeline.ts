import type { Duration } from '../options/checks.js';
import type {
  CacheOperations,
  CountArguments,
  CountOptions,
  InvalidateOptions,
  SetOptions,
  SoftExpiryOptions,
} from './operations.js';
import type { CacheExpiringSetOperations, CacheSetOperations } from './sets.js';

/**
 * Gathers operations and sends them together. They are not a transaction: other operations may run in between, and each
 * succeeds or fails alone.
 */
export class CachePipeline<Results extends unknown[] = []> {
  private readonly steps: (() => Promise<unknown>)[] = [];

  /** @internal */
  constructor(private readonly cache: CacheOperations) {}

  /** Changes and reads of plain sets, in the order of the pipeline. */
  get sets(): PipelineSets<Results> {
    return new PipelineSets(this, this.cache.sets);
  }

  /** Changes and reads of sets whose members expire, in the order of the pipeline. */
  get expiringSet(): PipelineExpiringSets<Results> {
    return new PipelineExpiringSets(this, this.cache.expiringSet);
  }

  /** `get` of the cache. */
  get<T = unknown>(key: string): CachePipeline<[...Results, T | undefined]> {
    return this.with(() => this.cache.get<T>(key));
  }

  /** `set` of the cache. */
  set(key: string, value: unknown, options?: SetOptions): CachePipeline<[...Results, void]> {
    return this.with(() => this.cache.set(key, value, options));
  }

  /** `incr` of the cache. */
  incr(key: string, options: CountOptions): CachePipeline<[...Results, number]>;
  incr(key: string, by: number | undefined, options: CountOptions): CachePipeline<[...Results, number]>;
  incr(key: string, ...given: CountArguments): CachePipeline<[...Results, number]> {
    return this.with(() => this.cache.incr(key, ...(given as [number, CountOptions])));
  }

  /** `decr` of the cache. */
  decr(key: string, options: CountOptions): CachePipeline<[...Results, number]>;
  decr(key: string, by: number | undefined, options: CountOptions): CachePipeline<[...Results, number]>;
  decr(key: string, ...given: CountArguments): CachePipeline<[...Results, number]> {
    return this.with(() => this.cache.decr(key, ...(given as [number, CountOptions])));
  }

  /** `del` of the cache. */
  del(keys: string | readonly string[], options?: InvalidateOptions): CachePipeline<[...Results, number]> {
    return this.with(() => this.cache.del(keys, options));
  }

  /** `getDel` of the cache. */
  getDel<T = unknown>(key: string): CachePipeline<[...Results, T | undefined]> {
    return this.with(() => this.cache.getDel<T>(key));
  }

  /** `expire` of the cache. */
  expire(key: string, ttl: Duration): CachePipeline<[...Results, boolean]>;
  expire(keys: string | readonly string[], options: SoftExpiryOptions): CachePipeline<[...Results, number]>;
  expire(keys: string | readonly string[], how: Duration | SoftExpiryOptions): CachePipeline<[...Results, unknown]> {
    return this.with(() => this.cache.expire(keys as string, how as Duration));
  }

  /** `ttl` of the cache. */
  ttl(key: string): CachePipeline<[...Results, number | null]> {
    return this.with(() => this.cache.ttl(key));
  }

  /** `has` of the cache. */
  has(key: string): CachePipeline<[...Results, boolean]> {
    return this.with(() => this.cache.has(key));
  }

  /** The results in the order of the operations. Rejects with the first error, once all have settled. */
  async exec(): Promise<Results> {
    const settled = await Promise.allSettled(this.steps.splice(0).map((step) => step()));
    return settled.map((result) => {
      if (result.status === 'rejected') throw result.reason;
      return result.value;
    }) as Results;
  }

  /** @internal */
  with<T>(step: () => Promise<T>): CachePipeline<[...Results, T]> {
    this.steps.push(step);
    return this as unknown as CachePipeline<[...Results, T]>;
  }
}

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
