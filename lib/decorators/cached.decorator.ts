import { CacheService } from '../cache/cache.service.js';
import type { CacheEntryOptions, ReadOptions } from '../cache/options/cache-options.js';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { CacheKeyError } from '../errors/cache-errors.js';
import { boundOptions, fixedOptions, withTemplate } from '../options/fixed-options.js';
import { cacheOption, unawaited } from '../options/option-checks.js';
import { MethodBegin } from '../primitives/idempotency/method-begin.js';
import { CACHE } from '../wiring/injected-services.js';
import { noteMethod } from '../wiring/noted-methods.js';
import { cacheDecoration, decoratorSettings, namesFunction, readOnce, requireFunctions } from './cache-decoration.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { notedKey, singleKeyFunction, templateNamed } from './key-template.js';
import {
  mockedService,
  serviceOf,
  type MethodCall,
  type MethodDecoration,
  type MethodInterceptor,
} from './method-wrapping.js';
import type { Inferred, OfArguments, OfResult } from './method.types.js';

/** How the result of a method is loaded and kept, and which calls and results are cached. */
export interface CachedOptions extends Omit<CacheEntryOptions, 'tags'> {
  /** Key templates, or a function of the method's arguments. @default none */
  tags?: readonly string[] | OfArguments<readonly string[]>;
  /**
   * Of the method's arguments: if `false`, the method runs, and the cache is neither read nor written. @default none
   */
  condition?: OfArguments<boolean>;
  /** Of the result and the arguments: if `true`, the result is not stored. @default none */
  unless?: OfResult<boolean>;
  /**
   * Of the method's arguments: if `true`, the method runs even if a value is stored, and its result is stored:
   * `forceFresh` of `getOrSet`. @default none
   */
  forceFresh?: OfArguments<boolean>;
  /**
   * Of the method's arguments: a signal that ends the wait of this call, as `signal` of `getOrSet` does. @default none
   */
  signal?: OfArguments<AbortSignal | undefined>;
}

/**
 * Returns the value of the key, and runs the method only if there is none: `CacheService.getOrSet`, with the method as
 * the loader. For each key one call at a time runs it, over all processes.
 *
 * The key is a template (`'product:<0>'`, `'price:<0.id>:<1>'`) or a function of the method's arguments. It must
 * contain everything that the result depends on: if the result differs by user, the key needs the user.
 *
 * An error of the method reaches the caller and is not stored.
 *
 * @throws CacheTimeoutError when the method takes longer than `loaderTimeout`
 * @throws CacheBackendError when Redis fails and `onRedisError` is `'throw'`
 * @throws CacheKeyError when the arguments make no valid key
 * @throws CacheConfigError when the result is a stream
 * @throws CacheNotWiredError when Nest did not create the instance
 */
export function Cached<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends CachedOptions = CachedOptions,
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string),
  options?: CachedOptions & Inferred<Options, 'tags' | 'condition' | 'unless' | 'forceFresh' | 'signal'>,
): CheckedMethodDecorator<'Cached', Key, Arguments, Options, This>;
export function Cached(key: string | ((...args: never[]) => string), options: CachedOptions = {}): MethodDecoration {
  cacheOption.object('options', options, 'an object of cache options');
  const { tags, condition, unless, forceFresh, signal, ...entry } = options;
  requireFunctions({ condition, unless, forceFresh, signal });
  decoratorSettings('Cached', key, entry);
  const method = {
    keyOf: singleKeyFunction(key, CacheKeyError),
    tagsOf: namesFunction(tags),
    condition,
    unless,
    forceFresh,
    signal,
  };
  return (target, propertyKey, descriptor) => {
    const named = fixedOptions(withTemplate(entry, templateNamed(key, target, propertyKey)));
    const interceptor = new CachedInterceptor({ ...method, options: named, ofInstance: boundOptions(named) });
    cacheDecoration('Cached', interceptor)(target, propertyKey, descriptor);
    noteMethod(target, propertyKey, {
      decorator: 'Cached',
      ...notedKey(key, CacheKeyError),
      options: { ...options },
    });
  };
}

/** How a method is cached. */
interface CachedMethod {
  readonly keyOf: (call: MethodCall) => string;
  readonly options: CacheEntryOptions;
  readonly ofInstance: ((instance: object) => CacheEntryOptions) | undefined;
  /** Makes the tags from the arguments, if any. */
  readonly tagsOf: ((call: MethodCall) => readonly string[]) | undefined;
  readonly condition: OfArguments<boolean> | undefined;
  readonly unless: OfResult<boolean> | undefined;
  readonly forceFresh: OfArguments<boolean> | undefined;
  readonly signal: OfArguments<AbortSignal | undefined> | undefined;
}

/** Answers from the cache, or runs the method as the loader. */
class CachedInterceptor implements MethodInterceptor {
  readonly mayAnswer = 'a hit';

  /** Whether all calls have the same options. */
  private readonly isFixed: boolean;

  constructor(private readonly method: CachedMethod) {
    const { ofInstance, tagsOf, forceFresh, signal } = method;
    this.isFixed = !ofInstance && !tagsOf && !forceFresh && !signal;
  }

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { condition, unless, options } = this.method;
    const cache = serviceOf(CACHE, call);
    if (condition && !cacheOption.decision('condition', condition.call(call.instance, ...call.args))) {
      return call.proceed();
    }
    let ran = false;
    const key = this.method.keyOf(call);
    const value = await cache.getOrSet(
      key,
      async (context) => {
        ran = true;
        const result = await call.proceed();
        try {
          const kind = streamKindOf(result);
          if (kind !== undefined) throw readOnce(call, kind);
          if (unless && cacheOption.decision('unless', unless.call(call.instance, result, ...call.args)))
            context.skip();
        } catch (error) {
          // The value from before is out of date all the same.
          if (cache instanceof CacheService) await cache.invalidate(key).catch(() => {});
          throw error;
        }
        return result;
      },
      this.isFixed ? options : this.optionsOf(call),
    );
    // A cached value stands for the method.
    if (MethodBegin.watches > 0) MethodBegin.note(call.method);
    if (value === undefined && !ran && !(cache instanceof CacheService)) throw mockedService(CACHE, call);
    return value;
  }

  private optionsOf(call: MethodCall): ReadOptions {
    const { ofInstance, tagsOf, forceFresh, signal } = this.method;
    const options = ofInstance?.(call.instance) ?? this.method.options;
    if (!tagsOf && !forceFresh && !signal) return options;
    return {
      ...options,
      ...(tagsOf && { tags: tagsOf(call) }),
      ...(forceFresh && { forceFresh: unawaited(forceFresh.call(call.instance, ...call.args)) }),
      ...(signal && { signal: unawaited(signal.call(call.instance, ...call.args)) }),
    };
  }
}
