import { CacheKeyError } from '../errors/cache-errors.js';
import type { CacheEntryOptions } from '../cache/options/cache-options.js';
import { entrySettings } from '../cache/options/entry-settings.js';
import { CachedInterceptor } from '../interceptors/cached.interceptor.js';
import { noteMethod } from '../interceptors/wiring/noted-methods.js';
import { cacheDecoration, namesFunction, requireFunctions } from './cache-decoration.js';
import { fixedOptions } from '../options/fixed-options.js';
import { singleKeyFunction } from './key-function.js';
import type { FitsKeyTemplate, YieldsOneKey } from './key-template.types.js';
import type {
  OfArguments,
  OfResult,
  OptionsTakeArguments,
  OptionsTakeResult,
  PromiseMethod,
  ResultCanBeStored,
  TagsFitTheMethod,
  TakesArguments,
} from './method.types.js';

/** How the result of a method is loaded and kept, and which results are. */
export interface CachedOptions extends Omit<CacheEntryOptions, 'tags'> {
  /** Key templates, or a function of the method's arguments. @default none */
  tags?: readonly string[] | OfArguments<readonly string[]>;
  /**
   * Of the method's arguments: where `false`, the method runs, and the cache is neither read nor written. @default none
   */
  condition?: OfArguments<boolean>;
  /** Of the result and the arguments: where `true`, the result is not stored. @default none */
  unless?: OfResult<boolean>;
  /**
   * Of the method's arguments: where `true`, the method runs whatever is stored, and its result is stored: `forceFresh`
   * of `getOrSet`. @default none
   */
  forceFresh?: OfArguments<boolean>;
  /**
   * Of the method's arguments: the signal that gives up the wait of this call: `signal` of `getOrSet`. @default none
   */
  signal?: OfArguments<AbortSignal | undefined>;
}

type FitsOptions<Method extends PromiseMethod, Options> = TagsFitTheMethod<Method, Options> &
  OptionsTakeArguments<Method, Options, 'tags' | 'condition' | 'forceFresh' | 'signal'> &
  OptionsTakeResult<Method, Options, 'unless'>;

/**
 * Answers with the value under the key, and runs the method only where there is none: `CacheService.getOrSet`, with the
 * method as the loader. Of all processes, one runs it for a key at a time.
 *
 * The key is a template (`'product:<0>'`, `'price:<0.id>:<1>'`) or a function of the method's arguments. It names all
 * that the result depends on: a result that differs by user needs the user in its key.
 *
 * The method's own error reaches the caller, and is not stored.
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
>(
  key: Key | ((...args: Arguments) => string),
  options?: Options,
): <Method extends PromiseMethod>(
  target: object,
  propertyKey: string | symbol,
  descriptor: TypedPropertyDescriptor<Method> &
    ResultCanBeStored<Method> &
    FitsKeyTemplate<Method, Key> &
    YieldsOneKey<Key> &
    TakesArguments<Method, Arguments> &
    FitsOptions<Method, Options>,
) => void;
export function Cached(
  key: string | ((...args: never[]) => string),
  options: CachedOptions = {},
): (target: object, propertyKey: string | symbol, descriptor: PropertyDescriptor) => void {
  const { tags, condition, unless, forceFresh, signal, ...entry } = options;
  requireFunctions({ condition, unless, forceFresh, signal });
  entrySettings(entry);
  const interceptor = new CachedInterceptor({
    keyOf: singleKeyFunction(key, CacheKeyError),
    options: fixedOptions(entry),
    tagsOf: namesFunction(tags),
    condition,
    unless,
    forceFresh,
    signal,
  });
  const decorate = cacheDecoration('Cached', interceptor);
  return (target, propertyKey, descriptor) => {
    decorate(target, propertyKey, descriptor);
    const template = typeof key === 'string' ? key : undefined;
    noteMethod(target, propertyKey, { decorator: 'Cached', template, options: { ...options } });
  };
}
