import type { FitsKeyTemplate, IsFixedName, YieldsOneKey } from './key-template.types.js';
import type {
  AnyMethod,
  EndsWithItsResult,
  HoldableMethod,
  MayResolveToUndefined,
  OptionsTakeArguments,
  OptionsTakeResult,
  PromiseMethod,
  ResultCanBeStored,
  TagsFitTheMethod,
  TakesArguments,
} from './method.types.js';

/**
 * What a decorator of this library returns: a decorator that compares the types of its method with the key and the
 * options that it was given. `Decorator` is its name.
 */
export interface CheckedMethodDecorator<
  Decorator extends keyof Checks<AnyMethod, Key, Arguments, Options>,
  Key,
  Arguments extends unknown[],
  Options,
> {
  /**
   * The descriptor is optional, so that it is a `PropertyDecorator`, too, and may be given to `applyDecorators` of
   * Nest. On a property it throws.
   */
  <Method extends DecoratedMethod<Decorator>>(
    target: object,
    propertyKey: string | symbol,
    descriptor?: TypedPropertyDescriptor<Method> & Checks<Method, Key, Arguments, Options>[Decorator],
  ): void;
}

type DecoratedMethod<Decorator> = Decorator extends 'DistributedLock' | 'Semaphore' | 'RateLimit'
  ? HoldableMethod
  : PromiseMethod;

/**
 * What each decorator asks of its method: `unknown` where that fits, otherwise a type whose property states the
 * problem.
 */
interface Checks<Method extends AnyMethod, Key, Arguments extends unknown[], Options> {
  DistributedLock: EndsWithItsResult<Method, { theLockCannotCoverWhatThisPromiseResolvesTo: never }> &
    FitsKeys<Method, Key, Arguments> &
    MayBeSkippedWhenBusy<Method, Options>;
  Semaphore: EndsWithItsResult<Method, { thePermitCannotCoverWhatThisPromiseResolvesTo: never }> &
    FitsOneKey<Method, Key, Arguments> &
    MayBeSkippedWhenBusy<Method, Options>;
  RateLimit: FitsOneKey<Method, Key, Arguments> &
    (Options extends { onLimit: 'skip' }
      ? MayResolveToUndefined<Method, { onLimitSkipNeedsAMethodThatMayResolveToUndefined: never }>
      : unknown);
  ScheduledLock: IsFixedName<Key & string> & MayResolveToUndefined<Method, { aSkippedRunResolvesToUndefined: never }>;
  OnlyLeader: IsFixedName<Key & string> &
    (Options extends { elsewhere: 'throw' }
      ? unknown
      : MayResolveToUndefined<Method, { aSkippedCallResolvesToUndefined: never }>);
  Idempotent: ResultCanBeStored<Method> &
    FitsOneKey<Method, Key, Arguments> &
    (Options extends { readonly fingerprint: infer Fingerprint } ? FitsKeyTemplate<Method, Fingerprint> : unknown) &
    OptionsTakeArguments<Method, Options, 'fingerprint' | 'signal'>;
  Cached: ResultCanBeStored<Method> &
    FitsOneKey<Method, Key, Arguments> &
    TagsFitTheMethod<Method, Options> &
    OptionsTakeArguments<Method, Options, 'tags' | 'condition' | 'forceFresh' | 'signal'> &
    OptionsTakeResult<Method, Options, 'unless'>;
  CachePut: FitsOneKey<Method, Key, Arguments> &
    TagsFitTheMethod<Method, Options> &
    (Options extends { readonly value: unknown }
      ? EndsWithItsResult<Method, { thereIsNoResultBeforeTheStreamHasEnded: never }>
      : ResultCanBeStored<Method>) &
    OptionsTakeArguments<Method, Options, 'tags' | 'condition'> &
    OptionsTakeResult<Method, Options, 'unless' | 'value'>;
  CacheEvict: EndsWithItsResult<Method, { theEvictionCannotWaitForWhatThisPromiseResolvesTo: never }> &
    FitsKeys<Method, Key, Arguments> &
    TagsFitTheMethod<Method, Options> &
    (Options extends { readonly prefix: infer Prefix extends string }
      ? FitsKeyTemplate<Method, Prefix> & YieldsOneKey<Prefix>
      : unknown) &
    OptionsTakeArguments<Method, Options, 'tags'>;
}

type FitsKeys<Method extends AnyMethod, Key, Arguments extends unknown[]> = FitsKeyTemplate<Method, Key> &
  TakesArguments<Method, Arguments>;

type FitsOneKey<Method extends AnyMethod, Key, Arguments extends unknown[]> = FitsKeys<Method, Key, Arguments> &
  YieldsOneKey<Key & string>;

/** `'skip'` needs a method that may resolve to `undefined`. */
type MayBeSkippedWhenBusy<Method extends AnyMethod, Options> = Options extends { onBusy: 'skip' }
  ? MayResolveToUndefined<Method, { onBusySkipNeedsAMethodThatMayResolveToUndefined: never }>
  : unknown;
