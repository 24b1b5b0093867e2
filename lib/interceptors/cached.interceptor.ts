import { CacheConfigError } from '../errors/cache-errors.js';
import type { CacheEntryOptions, ReadOptions } from '../cache/options/cache-options.js';
import { CacheService } from '../cache/cache.service.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { streamKindOf } from '../cache/values/streams.js';
import { CACHE, mockedService, serviceOf } from './wiring/injected-services.js';

/** How a method is cached. */
export interface CachedMethod {
  readonly keyOf: (args: readonly unknown[]) => string;
  readonly options: CacheEntryOptions;
  /** Makes the tags from the arguments, if any. */
  readonly tagsOf: ((args: readonly unknown[]) => readonly string[]) | undefined;
  readonly condition: ((...args: unknown[]) => boolean) | undefined;
  readonly unless: ((result: unknown, ...args: unknown[]) => boolean) | undefined;
  readonly forceFresh: ((...args: unknown[]) => boolean) | undefined;
  readonly signal: ((...args: unknown[]) => AbortSignal | undefined) | undefined;
}

/** Answers from the cache, or runs the method as the loader. */
export class CachedInterceptor implements MethodInterceptor {
  constructor(private readonly method: CachedMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { condition, unless } = this.method;
    const cache = serviceOf(CACHE, call);
    if (condition && !condition(...call.args)) return call.proceed();
    let ran = false;
    const value = await cache.getOrSet(
      this.method.keyOf(call.args),
      async (context) => {
        ran = true;
        const result = await call.proceed();
        requireStorable(call, result);
        if (unless?.(result, ...call.args)) context.skip();
        return result;
      },
      this.optionsOf(call.args),
    );
    if (value === undefined && !ran && !(cache instanceof CacheService)) throw mockedService(CACHE, call);
    return value;
  }

  private optionsOf(args: readonly unknown[]): ReadOptions {
    const { options, tagsOf, forceFresh, signal } = this.method;
    if (!tagsOf && !forceFresh && !signal) return options;
    return {
      ...options,
      ...(tagsOf && { tags: tagsOf(args) }),
      ...(forceFresh && { forceFresh: forceFresh(...args) }),
      ...(signal && { signal: signal(...args) }),
    };
  }
}

/** @throws CacheConfigError for a value that can be read only once */
export function requireStorable({ name }: MethodCall, value: unknown): void {
  const kind = streamKindOf(value);
  if (kind === undefined) return;
  throw new CacheConfigError(
    `${name} returned ${kind}, which can be read only once and so cannot be cached; read it to its end and return its content`,
  );
}
