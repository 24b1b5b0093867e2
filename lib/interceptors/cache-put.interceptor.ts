import type { SetOptions } from '../cache/api/cache-writes.js';
import { requireStorable } from './cached.interceptor.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { CACHE, serviceOf } from './wiring/injected-services.js';

/** What a method puts into the cache. */
export interface PuttingMethod {
  readonly keyOf: (args: readonly unknown[]) => string;
  readonly tagsOf: ((args: readonly unknown[]) => readonly string[]) | undefined;
  readonly options: Omit<SetOptions, 'tags'>;
  readonly value: ((result: unknown, ...args: unknown[]) => unknown) | undefined;
  readonly condition: ((...args: unknown[]) => boolean) | undefined;
  readonly unless: ((result: unknown, ...args: unknown[]) => boolean) | undefined;
}

/** Runs the method, and stores its result. */
export class CachePutInterceptor implements MethodInterceptor {
  constructor(private readonly method: PuttingMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { keyOf, tagsOf, options, value, condition, unless } = this.method;
    const cache = serviceOf(CACHE, call);
    if (condition && !condition(...call.args)) return call.proceed();
    // Made before the method runs, because it may change its arguments.
    const key = keyOf(call.args);
    const tags = tagsOf?.(call.args);
    const result = await call.proceed();
    if (unless?.(result, ...call.args)) return result;
    const stored = value ? await value(result, ...call.args) : result;
    requireStorable(call, stored);
    await cache.set(key, stored, tags ? { ...options, tags } : options);
    return result;
  }
}
