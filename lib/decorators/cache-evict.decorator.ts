import { Logger } from '@nestjs/common';
import type { CacheService } from '../cache/cache.service.js';
import type { InvalidateOptions } from '../cache/operations.js';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { CacheKeyError, CacheConfigError } from '../errors/cache-errors.js';
import { LimitedLog, textOf } from '../errors/limited-log.js';
import { oneOf, trueOrFalse } from '../options/checks.js';
import { fixedOptions } from '../options/fixed-options.js';
import { cacheOption } from '../options/option-checks.js';
import { CACHE } from '../wiring/injected-services.js';
import { cacheDecoration, decoratorSettings, namesFunction, onceCommitted, requireOnly } from './cache-decoration.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { singleKeyFunction, type AnyKey } from './key-template.js';
import { serviceOf, type MethodCall, type MethodDecoration, type MethodInterceptor } from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

/** What is deleted in addition to the keys, and when. */
export interface CacheEvictOptions extends InvalidateOptions {
  /**
   * `'after'`: once the method has succeeded, or by `cache.afterCommit` once its transaction has committed. `'before'`:
   * before it runs. `'both'`: before it runs, and again when it has ended, even if it failed: a write whose answer was
   * lost fails although it may have been carried out.
   * @default 'after'
   */
  when?: EvictMoment;
  /**
   * Whether the values are kept, stale at once: `CacheService.expire` with `{ soft: true }`, and `expireByTag`. Not
   * together with `prefix`.
   * @default false
   */
  soft?: boolean;
  /** Key templates, or a function of the method's arguments: deletes the values with these tags. @default none */
  tags?: readonly string[] | OfArguments<readonly string[]>;
  /**
   * A key template: deletes the values whose keys begin with it. End it with a separator, because `'product:10'` begins
   * with `'product:1'`.
   * @default none
   */
  prefix?: string;
}

/**
 * When to evict: once the method has succeeded, before it runs, or before it runs and again when it has ended.
 * @inline
 */
export type EvictMoment = 'after' | 'before' | 'both';

const moment = oneOf<EvictMoment>('after', 'before', 'both');

/**
 * Runs the method, and deletes the values that it makes out of date: `CacheService.invalidate`, `deleteByTag` and
 * `deleteByPrefix`. Loads that began before store nothing.
 *
 * The keys are made from the arguments before the method runs: by a template (`'product:<0.id>'`), one for each element
 * of a list (`'product:<0.items.*.id>'`), several templates (none if `tags` or `prefix` are given), or a function of
 * the method's arguments.
 *
 * @throws CacheBackendError when Redis fails and `onRedisError` is `'throw'`; with `when: 'after'`, the method has
 * succeeded
 * @throws CacheKeyError when the arguments make no valid key; the method did not run
 * @throws CacheConfigError when the result is a stream, whose work would end after the eviction
 * @throws CacheNotWiredError when Nest did not create the instance
 */
export function CacheEvict<
  const Keys extends string | readonly string[] = never,
  Arguments extends unknown[] = [],
  const Options extends CacheEvictOptions = CacheEvictOptions,
  This = unknown,
>(
  keys: Keys | ((this: This, ...args: Arguments) => string | readonly string[]),
  options?: CacheEvictOptions & Inferred<Options, 'tags' | 'prefix'>,
): CheckedMethodDecorator<'CacheEvict', Keys, Arguments, Options, This>;
export function CacheEvict(keys: AnyKey, given: CacheEvictOptions = {}): MethodDecoration {
  cacheOption.object('options', given, 'an object of options of an invalidation');
  const { when = 'after', soft = false, tags, prefix, ...options } = given;
  moment(when, 'when', cacheOption);
  trueOrFalse(soft, 'soft', cacheOption);
  if (soft && prefix !== undefined)
    throw cacheOption.refused('prefix', prefix, 'no prefix with soft: it takes keys and tags');
  requireOnly('CacheEvict', options, ['barrier', 'onRedisError']);
  decoratorSettings('CacheEvict', keys, options);
  const keysOf = namesFunction(keys);
  const tagsOf = namesFunction(tags);
  const prefixOf = prefix === undefined ? undefined : singleKeyFunction(prefix, CacheKeyError);
  if (!keysOf && !tagsOf && !prefixOf) {
    throw new CacheKeyError('@CacheEvict has no keys, no tags and no prefix; give one of them');
  }
  const { barrier: _, ...withoutBarrier } = options;
  const interceptor = new CacheEvictInterceptor({
    keysOf,
    tagsOf,
    prefixOf,
    when,
    soft,
    options: fixedOptions(options),
    withoutBarrier: fixedOptions(withoutBarrier),
  });
  return cacheDecoration('CacheEvict', interceptor);
}

type NamesOf = (call: MethodCall) => readonly string[];

/** What a method evicts. */
interface EvictingMethod {
  readonly keysOf: NamesOf | undefined;
  readonly tagsOf: NamesOf | undefined;
  readonly prefixOf: ((call: MethodCall) => string) | undefined;
  readonly when: EvictMoment;
  /** Whether the evicted values are kept, stale at once. */
  readonly soft: boolean;
  readonly options: InvalidateOptions;
  /** The options for tags and prefixes, which have no barrier. */
  readonly withoutBarrier: Pick<InvalidateOptions, 'onRedisError'>;
}

/** Runs the method, and deletes what it makes out of date. */
class CacheEvictInterceptor implements MethodInterceptor {
  readonly withoutResult = 'the client has its answer before the values are evicted';
  private readonly logger = new LimitedLog(new Logger('RedisLock'));

  constructor(private readonly method: EvictingMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { when } = this.method;
    const cache = serviceOf(CACHE, call);
    const evict = this.evictionOf(cache, call);
    if (when !== 'after') await evict();
    let kind: string | undefined;
    try {
      const result = await call.proceed();
      kind = streamKindOf(result);
      if (kind !== undefined) throw readLater(call, kind);
      if (when !== 'before') await onceCommitted(cache, call, evict);
      return result;
    } catch (error) {
      // If the eviction itself failed, a second one does no harm. What makes a stream may have written already.
      if (when === 'both' || kind !== undefined) await evict().catch((reason: unknown) => this.warn(call, reason));
      throw error;
    }
  }

  /** Makes the keys before the method runs, because the method may change its arguments. */
  private evictionOf(cache: CacheService, call: MethodCall): () => Promise<void> {
    const { options, withoutBarrier, soft } = this.method;
    const keys = this.method.keysOf?.(call) ?? [];
    const tags = this.method.tagsOf?.(call) ?? [];
    const prefix = this.method.prefixOf?.(call);
    return async () => {
      await Promise.all([
        keys.length > 0 && (soft ? cache.expire(keys, { soft, ...options }) : cache.invalidate(keys, options)),
        tags.length > 0 && (soft ? cache.expireByTag(tags, withoutBarrier) : cache.deleteByTag(tags, withoutBarrier)),
        prefix !== undefined && cache.deleteByPrefix(prefix, withoutBarrier),
      ]);
    };
  }

  private warn({ name }: MethodCall, reason: unknown): void {
    this.logger.warn(`${name} failed, and what it may have changed was not evicted: ${textOf(reason)}`);
  }
}

function readLater({ name }: MethodCall, kind: string): CacheConfigError {
  return new CacheConfigError(
    `${name} returned ${kind}, whose work may run after the eviction, while it is read; read it to its end and return ` +
      'its content, as by lastValueFrom()',
  );
}
