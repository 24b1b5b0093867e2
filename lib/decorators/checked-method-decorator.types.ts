import type { Digit, FitsInstance, FitsKeyTemplate, IsFixedName, YieldsOneKey } from './key-template.types.js';
import type {
  AnyMethod,
  EndsWithItsResult,
  HaveThis,
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
  Decorator extends keyof Checks<AnyMethod, Key, Arguments, Options, object>,
  Key,
  Arguments extends unknown[],
  Options,
  This = unknown,
> {
  /**
   * The descriptor is optional, so that it is a `PropertyDecorator`, too, and may be given to `applyDecorators` of
   * Nest. On a property it throws.
   */
  <Method extends DecoratedMethod<Decorator>, Target extends object>(
    target: Target,
    propertyKey: string | symbol,
    descriptor?: TypedPropertyDescriptor<Method> &
      Checks<Method, Key, Arguments, Options, Target>[Decorator] &
      HaveThis<Target, This, Options>,
  ): void;
}

type DecoratedMethod<Decorator> = Decorator extends 'DistributedLock' | 'Semaphore' | 'RateLimit'
  ? HoldableMethod
  : PromiseMethod;

/**
 * What each decorator asks of its method: `unknown` where that fits, otherwise a type whose property states the
 * problem.
 */
interface Checks<Method extends AnyMethod, Key, Arguments extends unknown[], Options, Target> {
  DistributedLock: EndsWithItsResult<Method, { theLockCannotCoverWhatThisPromiseResolvesTo: never }> &
    FitsKeys<Method, Key, Arguments, Target> &
    OptionsTakeArguments<Method, Options, 'signal'> &
    MayBeSkippedWhenBusy<Method, Options>;
  Semaphore: EndsWithItsResult<Method, { thePermitCannotCoverWhatThisPromiseResolvesTo: never }> &
    FitsOneKey<Method, Key, Arguments, Target> &
    OptionsTakeArguments<Method, Options, 'signal'> &
    MayBeSkippedWhenBusy<Method, Options>;
  RateLimit: FitsOneKey<Method, Key, Arguments, Target> &
    (Options extends { onLimit: 'skip' }
      ? MayResolveToUndefined<Method, { onLimitSkipNeedsAMethodThatMayResolveToUndefined: never }>
      : unknown);
  ScheduledLock: IsFixedName<Key & string, Digit> &
    FitsInstance<Target, Key & string> &
    MayResolveToUndefined<Method, { aSkippedRunResolvesToUndefined: never }>;
  OnlyLeader: IsFixedName<Key & string, Digit | 'this.'> &
    (Options extends { elsewhere: 'throw' }
      ? unknown
      : MayResolveToUndefined<Method, { aSkippedCallResolvesToUndefined: never }>);
  Idempotent: ResultCanBeStored<Method> &
    FitsOneKey<Method, Key, Arguments, Target> &
    (Options extends { readonly fingerprint: infer Fingerprint }
      ? FitsKeyTemplate<Method, Fingerprint, Target>
      : unknown) &
    OptionsTakeArguments<Method, Options, 'fingerprint' | 'signal'>;
  Cached: ResultCanBeStored<Method> &
    FitsOneKey<Method, Key, Arguments, Target> &
    TagsFitTheMethod<Method, Options, Target> &
    OptionsTakeArguments<Method, Options, 'tags' | 'condition' | 'forceFresh' | 'signal'> &
    OptionsTakeResult<Method, Options, 'unless'>;
  CachePut: FitsOneKey<Method, Key, Arguments, Target> &
    TagsFitTheMethod<Method, Options, Target> &
    (Options extends { readonly value: unknown }
      ? EndsWithItsResult<Method, { thereIsNoResultBeforeTheStreamHasEnded: never }>
      : ResultCanBeStored<Method>) &
    OptionsTakeArguments<Method, Options, 'tags' | 'condition'> &
    OptionsTakeResult<Method, Options, 'unless' | 'value'>;
  CacheEvict: EndsWithItsResult<Method, { theEvictionCannotWaitForWhatThisPromiseResolvesTo: never }> &
    FitsKeys<Method, Key, Arguments, Target> &
    TagsFitTheMethod<Method, Options, Target> &
    (Options extends { readonly prefix: infer Prefix extends string }
      ? FitsKeyTemplate<Method, Prefix, Target> & YieldsOneKey<Prefix>
      : unknown) &
    OptionsTakeArguments<Method, Options, 'tags'>;
}

type FitsKeys<Method extends AnyMethod, Key, Arguments extends unknown[], Target> = FitsKeyTemplate<
  Method,
  Key,
  Target
> &
  TakesArguments<Method, Arguments>;

type FitsOneKey<Method extends AnyMethod, Key, Arguments extends unknown[], Target> = FitsKeys<
  Method,
  Key,
  Arguments,
  Target
> &
  YieldsOneKey<Key & string>;

/** `'skip'` needs a method that may resolve to `undefined`. */
type MayBeSkippedWhenBusy<Method extends AnyMethod, Options> = Options extends { onBusy: 'skip' }
  ? MayResolveToUndefined<Method, { onBusySkipNeedsAMethodThatMayResolveToUndefined: never }>
  : unknown;
