import type { Observable } from 'rxjs';
import { PrimitiveConfigError, PrimitiveKeyError } from '../../errors/primitive-errors.js';
import {
  RateLimitInterceptor,
  type LimitedCall,
  type OnLimit,
} from '../../interceptors/primitives/rate-limit.interceptor.js';
import { RATE_LIMITS } from '../../interceptors/wiring/injected-services.js';
import { injectProperty } from '../../interceptors/wiring/package-copy.js';
import { fixedOptions } from '../../options/fixed-options.js';
import { withTemplate } from '../../options/key-template-mark.js';
import { primitiveOption } from '../../options/option-checks.js';
import { rateLimitSettings, type RateLimitOptions } from '../../primitives/rate-limit/rate-limit-options.js';
import { singleKeyFunction, templateNamed } from '../key-function.js';
import type { FitsKeyTemplate, YieldsOneKey } from '../key-template.types.js';
import type { MayResolveToUndefined, TakesArguments } from '../method.types.js';
import { noteBackend, refuseOwnAnswers, wrapMethod } from '../method-wrapping.js';

const DECORATOR = { name: 'RateLimit', ConfigError: PrimitiveConfigError };

/** The limit, and what a call beyond it does. */
export type RateLimitedOptions = RateLimitOptions & {
  /**
   * What a call beyond the limit does: throw the `RateLimitExceededError` (`'throw'`), resolve to `undefined`
   * (`'skip'`; an Observable completes at once), or resolve to the result of a function.
   * @default 'throw'
   */
  onLimit?: OnLimit;
};

/** A method whose calls can be limited: it ends later than it returns. */
export type LimitableMethod = (...args: never[]) => Promise<unknown> | Observable<unknown>;

/** `'skip'` needs a method that may resolve to `undefined`. */
type MayBeSkipped<Method extends LimitableMethod, Options> = Options extends { onLimit: 'skip' }
  ? MayResolveToUndefined<Method, { onLimitSkipNeedsAMethodThatMayResolveToUndefined: never }>
  : unknown;

/**
 * Runs the method only as often as the limit allows, over all processes.
 *
 * The key is a template (`'user:<0>'`, `'order:<0.customer.id>'`) or a function of the method's arguments. Methods with
 * the same key and the same limit share its count. An Observable is counted when it is subscribed to.
 *
 * @throws RateLimitExceededError when the limit is reached, unless `onLimit` says otherwise
 * @throws PrimitiveBackendError when the store fails and `onFailure` is 'closed'
 * @throws PrimitiveKeyError when the arguments make no valid key
 * @throws PrimitiveNotWiredError when Nest did not create the instance
 */
export function RateLimit<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends RateLimitedOptions = RateLimitedOptions,
>(
  key: Key | ((...args: Arguments) => string),
  options: Options,
): <Method extends LimitableMethod>(
  target: object,
  propertyKey: string | symbol,
  descriptor: TypedPropertyDescriptor<Method> &
    FitsKeyTemplate<Method, Key> &
    YieldsOneKey<Key> &
    TakesArguments<Method, Arguments> &
    MayBeSkipped<Method, Options>,
) => void;
export function RateLimit(
  key: string | ((...args: never[]) => string),
  given: RateLimitedOptions,
): (target: object, propertyKey: string | symbol, descriptor: PropertyDescriptor) => void {
  const { onLimit = 'throw', ...limits } = primitiveOption.object('options', given, 'a limit') as RateLimitedOptions;
  requireOnLimit(onLimit);
  rateLimitSettings(limits);
  const keyOf = singleKeyFunction(key, PrimitiveKeyError);
  return (target, propertyKey, descriptor) => {
    if (onLimit === 'skip') refuseOwnAnswers(DECORATOR, target, propertyKey, 'a skipped call');
    const named = fixedOptions(withTemplate(limits, templateNamed(key, target, propertyKey)));
    const interceptor = new RateLimitInterceptor(keyOf, named, onLimit);
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, RATE_LIMITS);
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

export type { LimitedCall };

function requireOnLimit(onLimit: unknown): void {
  if (onLimit === 'throw' || onLimit === 'skip' || typeof onLimit === 'function') return;
  throw primitiveOption.refused('onLimit', onLimit, "'throw', 'skip' or a function");
}
