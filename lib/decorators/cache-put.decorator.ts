import type { SetOptions } from '../cache/operations.js';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { CacheKeyError } from '../errors/cache-errors.js';
import { fixedOptions } from '../options/fixed-options.js';
import { cacheOption } from '../options/option-checks.js';
import { CACHE } from '../wiring/injected-services.js';
import { noteMethod } from '../wiring/noted-methods.js';
import {
  cacheDecoration,
  decoratorSettings,
  namesFunction,
  onceCommitted,
  readOnce,
  requireFunctions,
  requireOnly,
} from './cache-decoration.js';
import type { CachedOptions } from './cached.decorator.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import type { CacheService } from '../cache/cache.service.js';
import { notedKey, singleKeyFunction } from './key-template.js';
import { serviceOf, type MethodCall, type MethodDecoration, type MethodInterceptor } from './method-wrapping.js';
import type { Inferred, OfArguments, OfResult } from './method.types.js';

/** What is stored, and for how long. */
export interface CachePutOptions
  extends Omit<SetOptions, 'tags'>, Pick<CachedOptions, 'tags' | 'condition' | 'unless'> {
  /** Makes the stored value from the result and the method's arguments. @default the result */
  value?: OfResult<unknown>;
}

/**
 * Runs the method every time, and stores its result once it has succeeded: `CacheService.set`. Where it stores nothing
 * (`condition`, `unless`, a result that cannot be stored), it deletes the value from before.
 *
 * `@CacheEvict` is the safer choice: if two calls write at the same time, their values may be stored in another order
 * than their rows, and the older value then stays for its `ttl`. Use `@CachePut` if only one writer runs at a time
 * (`@DistributedLock` above it), or if the older value does no harm.
 *
 * The key is made from the arguments before the method runs: by a template (`'product:<0.id>'`) or a function.
 *
 * @throws CacheBackendError when Redis fails and `onRedisError` is `'throw'`; the method has succeeded
 * @throws CacheKeyError when the arguments make no valid key; the method did not run
 * @throws CacheConfigError when the result or the value is a stream; the method has then run
 * @throws CacheNotWiredError when Nest did not create the instance
 */
export function CachePut<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends CachePutOptions = CachePutOptions,
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string),
  options?: CachePutOptions & Inferred<Options, 'value' | 'tags' | 'condition' | 'unless'>,
): CheckedMethodDecorator<'CachePut', Key, Arguments, Options, This>;
export function CachePut(key: string | ((...args: never[]) => string), given: CachePutOptions = {}): MethodDecoration {
  cacheOption.object('options', given, 'an object of cache options');
  const { value, tags, condition, unless, ...options } = given;
  requireFunctions({ value, condition, unless });
  requireOnly('CachePut', options, ['ttl', 'jitter', 'nullTtl', 'staleTtl', 'onRedisError']);
  decoratorSettings('CachePut', key, options);
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
    noteMethod(target, propertyKey, { decorator: 'CachePut', ...notedKey(key, CacheKeyError), options });
  };
}

/** What a method puts into the cache. */
interface PuttingMethod {
  readonly keyOf: (call: MethodCall) => string;
  readonly tagsOf: ((call: MethodCall) => readonly string[]) | undefined;
  readonly options: Omit<SetOptions, 'tags'>;
  readonly value: OfResult<unknown> | undefined;
  readonly condition: OfArguments<boolean> | undefined;
  readonly unless: OfResult<boolean> | undefined;
}

/** Runs the method, and stores its result. */
class CachePutInterceptor implements MethodInterceptor {
  readonly withoutResult = 'there is no result to store';

  constructor(private readonly method: PuttingMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { tagsOf, options, value, condition, unless } = this.method;
    const cache = serviceOf(CACHE, call);
    const puts = !condition || cacheOption.decision('condition', condition.call(call.instance, ...call.args));
    // Made before the method runs, because it may change its arguments.
    const key = puts ? this.method.keyOf(call) : this.keyIfAny(call);
    const tags = puts ? tagsOf?.(call) : undefined;
    const result = await call.proceed();
    const kind = streamKindOf(result);
    if (key === undefined) {
      if (kind !== undefined) throw readOnce(call, kind);
      return result;
    }
    let toStore: { readonly value: unknown } | undefined;
    try {
      // What it writes while it is read, it would write after the value is stored.
      if (kind !== undefined) throw readOnce(call, kind);
      if (puts && !cacheOption.decision('unless', unless?.call(call.instance, result, ...call.args))) {
        const stored = value ? await value.call(call.instance, result, ...call.args) : result;
        const storedKind = streamKindOf(stored);
        if (storedKind !== undefined) throw readOnce(call, storedKind);
        toStore = { value: stored };
      }
    } finally {
      if (!toStore) await onceCommitted(cache, call, () => this.evict(cache, key));
    }
    if (toStore) {
      const { value: stored } = toStore;
      const put = () => cache.set(key, stored, tags ? { ...options, tags } : options);
      await onceCommitted(cache, call, put);
    }
    return result;
  }

  /** The value from before the method ran is out of date. */
  private evict(cache: CacheService, key: string): Promise<void> {
    const { onRedisError } = this.method.options;
    return cache.invalidate(key, onRedisError === undefined ? undefined : { onRedisError });
  }

  /** The key, which `condition` may have found out to be impossible: a function may throw any error then. */
  private keyIfAny(call: MethodCall): string | undefined {
    try {
      return this.method.keyOf(call);
    } catch {
      return undefined;
    }
  }
}
