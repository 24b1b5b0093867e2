import { Logger } from '@nestjs/common';
import { isObservable } from 'rxjs';
import { CacheConfigError } from '../errors/cache-errors.js';
import { LimitedLog } from '../errors/limited-log.js';
import type { InvalidateOptions } from '../cache/api/cache-deletions.js';
import type { CacheService } from '../cache/cache.service.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { CACHE, serviceOf } from './wiring/injected-services.js';

/** When to evict: once the method has succeeded, before it runs, or before it runs and again when it has ended. */
export type EvictMoment = 'after' | 'before' | 'both';

type NamesOf = (args: readonly unknown[]) => readonly string[];

/** What a method evicts. */
export interface EvictingMethod {
  readonly keysOf: NamesOf | undefined;
  readonly tagsOf: NamesOf | undefined;
  readonly prefixOf: ((args: readonly unknown[]) => string) | undefined;
  readonly when: EvictMoment;
  /** Whether the evicted values are kept, stale at once. */
  readonly soft: boolean;
  readonly options: InvalidateOptions;
  /** The options for tags and prefixes, which have no barrier. */
  readonly withoutBarrier: Pick<InvalidateOptions, 'onRedisError'>;
}

/** Runs the method, and deletes what it makes out of date. */
export class CacheEvictInterceptor implements MethodInterceptor {
  private readonly logger = new LimitedLog(new Logger('RedisLock'));

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
      // If the eviction itself failed, a second one does no harm.
      if (when === 'both') await evict().catch((reason: unknown) => this.warn(call, reason));
      throw error;
    }
  }

  /** Makes the keys before the method runs, because the method may change its arguments. */
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
