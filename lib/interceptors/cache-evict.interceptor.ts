import { Logger } from '@nestjs/common';
import { isObservable } from 'rxjs';
import { CacheConfigError } from '../errors/cache-errors.js';
import type { InvalidateOptions } from '../cache/api/cache-deletions.js';
import type { CacheService } from '../cache/cache.service.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { CACHE, serviceOf } from './wiring/injected-services.js';

/** Around the method: once it has succeeded, before it, or before it and once it has ended, however it did. */
export type EvictMoment = 'after' | 'before' | 'both';

type NamesOf = (args: readonly unknown[]) => readonly string[];

/** What a method evicts. */
export interface EvictingMethod {
  readonly keysOf: NamesOf | undefined;
  readonly tagsOf: NamesOf | undefined;
  readonly prefixOf: ((args: readonly unknown[]) => string) | undefined;
  readonly when: EvictMoment;
  /** What it evicts is kept, and stale. */
  readonly soft: boolean;
  readonly options: InvalidateOptions;
  /** For tags and prefixes, which have none. */
  readonly withoutBarrier: Pick<InvalidateOptions, 'onRedisError'>;
}

/** Runs the method, and deletes what it makes out of date. */
export class CacheEvictInterceptor implements MethodInterceptor {
  private readonly logger = new Logger('RedisLock');

  constructor(private readonly method: EvictingMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { when } = this.method;
    const evict = this.evictionOf(serviceOf(CACHE, call), call.args);
    if (when !== 'after') await evict();
    try {
      const result = await call.proceed();
      if (isObservable(result)) throw notBegun(call);
      if (when !== 'before') await evict();
      return result;
    } catch (error) {
      // Eviction twice, where it was eviction that failed, does no harm.
      if (when === 'both') await evict().catch((reason: unknown) => this.warn(call, reason));
      throw error;
    }
  }

  /** Made before the method runs, which may change its arguments. */
  private evictionOf(cache: CacheService, args: readonly unknown[]): () => Promise<void> {
    const { options, withoutBarrier, soft } = this.method;
    const keys = this.method.keysOf?.(args) ?? [];
    const tags = this.method.tagsOf?.(args) ?? [];
    const prefix = this.method.prefixOf?.(args);
    return async () => {
      await Promise.all([
        keys.length > 0 && (soft ? cache.expire(keys, { soft, ...options }) : cache.invalidate(keys, options)),
        tags.length > 0 && (soft ? cache.expireByTag(tags, withoutBarrier) : cache.deleteByTag(tags, withoutBarrier)),
        prefix !== undefined && cache.deleteByPrefix(prefix, withoutBarrier),
      ]);
    };
  }

  private warn({ name }: MethodCall, reason: unknown): void {
    this.logger.warn(`${name} failed, and what it may have changed was not evicted: ${String(reason)}`);
  }
}

function notBegun({ name }: MethodCall): CacheConfigError {
  return new CacheConfigError(
    `${name} returned an Observable: its work begins after the eviction; return a promise, as of lastValueFrom()`,
  );
}
