import type { SetOptions } from '../cache/operations.js';
import { entrySettings } from '../cache/options/entry-settings.js';
import { CacheKeyError } from '../errors/cache-errors.js';
import { fixedOptions } from '../options/fixed-options.js';
import { CACHE, serviceOf, type MethodCall, type MethodInterceptor } from '../wiring/injected-services.js';
import { noteMethod } from '../wiring/noted-methods.js';
import { cacheDecoration, namesFunction, requireFunctions, requireOnly, requireStorable } from './cache-decoration.js';
import type { CachedOptions } from './cached.decorator.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { singleKeyFunction } from './key-template.js';
import type { MethodDecoration } from './method-wrapping.js';
import type { Inferred, OfResult } from './method.types.js';

/** What is stored, and for how long. */
export interface CachePutOptions
  extends Omit<SetOptions, 'tags'>, Pick<CachedOptions, 'tags' | 'condition' | 'unless'> {
  /** Makes the stored value from the result and the method's arguments. @default the result */
  value?: OfResult<unknown>;
}

/**
 * Runs the method every time, and stores its result once it has succeeded: `CacheService.set`.
 *
 * `@CacheEvict` is the safer choice: if two calls write at the same time, their values may be stored in another order
 * than their rows, and the older value then stays for its `ttl`. Use `@CachePut` if only one writer runs at a time
 * (`@DistributedLock` above it), or if the older value does no harm.
 *
 * The key is made from the arguments before the method runs: by a template (`'product:<0.id>'`) or a function.
 *
 * @throws CacheBackendError when Redis fails and `onRedisError` is `'throw'`; the method has succeeded
 * @throws CacheKeyError when the arguments make no valid key; the method did not run
 * @throws CacheConfigError when the value is a stream; the method has then run
 * @throws CacheNotWiredError when Nest did not create the instance
 */
export function CachePut<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends CachePutOptions = CachePutOptions,
>(
  key: Key | ((...args: Arguments) => string),
  options?: CachePutOptions & Inferred<Options, 'value' | 'tags' | 'condition' | 'unless'>,
): CheckedMethodDecorator<'CachePut', Key, Arguments, Options>;
export function CachePut(
  key: string | ((...args: never[]) => string),
  { value, tags, condition, unless, ...options }: CachePutOptions = {},
): MethodDecoration {
  requireFunctions({ value, condition, unless });
  requireOnly('CachePut', options, ['ttl', 'jitter', 'nullTtl', 'staleTtl', 'onRedisError']);
  entrySettings(options);
  const interceptor = new CachePutInterceptor({
    keyOf: singleKeyFunction(key, CacheKeyError),
    tagsOf: namesFunction(tags),
    options: fixedOptions(options),
    value,
    condition,
    unless,
  });
  const decorate = cacheDecoration('CachePut', interceptor);
  return (target, propertyKey, descriptor) => {
    decorate(target, propertyKey, descriptor);
    const template = typeof key === 'string' ? key : undefined;
    noteMethod(target, propertyKey, { decorator: 'CachePut', template, options });
  };
}

/** What a method puts into the cache. */
interface PuttingMethod {
  readonly keyOf: (args: readonly unknown[]) => string;
  readonly tagsOf: ((args: readonly unknown[]) => readonly string[]) | undefined;
  readonly options: Omit<SetOptions, 'tags'>;
  readonly value: ((result: unknown, ...args: unknown[]) => unknown) | undefined;
  readonly condition: ((...args: unknown[]) => boolean) | undefined;
  readonly unless: ((result: unknown, ...args: unknown[]) => boolean) | undefined;
}

/** Runs the method, and stores its result. */
class CachePutInterceptor implements MethodInterceptor {
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
