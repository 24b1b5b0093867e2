import { defer, EMPTY, from, isObservable, switchMap, type Observable } from 'rxjs';
import { PrimitiveConfigError, PrimitiveKeyError, RateLimitExceededError } from '../errors/primitive-errors.js';
import { fixedOptions, withTemplate } from '../options/fixed-options.js';
import { primitiveOption } from '../options/option-checks.js';
import { rateLimitSettings, type RateLimitOptions } from '../primitives/rate-limit/rate-limit-options.js';
import { RATE_LIMITS } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { emitted, requireReaction, undeclaredObservable } from './holding.js';
import { singleKeyFunction, templateNamed } from './key-template.js';
import {
  mockedService,
  noteBackend,
  serviceOf,
  wrapMethod,
  type MethodCall,
  type MethodDecoration,
  type MethodInterceptor,
} from './method-wrapping.js';
import type { Inferred } from './method.types.js';

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

/** The argument of `onLimit`. */
export interface LimitedCall {
  readonly key: string;
  readonly args: readonly unknown[];
  readonly error: RateLimitExceededError;
}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). @inline */
export type OnLimit = 'throw' | 'skip' | ((limited: LimitedCall) => unknown);

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
  const Options extends Pick<RateLimitedOptions, 'onLimit'> = RateLimitedOptions,
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string),
  options: RateLimitedOptions & Inferred<Options, 'onLimit'>,
): CheckedMethodDecorator<'RateLimit', Key, Arguments, Options, This>;
export function RateLimit(key: string | ((...args: never[]) => string), given: RateLimitedOptions): MethodDecoration {
  const { onLimit = 'throw', ...limits } = primitiveOption.object('options', given, 'a limit') as RateLimitedOptions;
  requireReaction('onLimit', onLimit, primitiveOption);
  rateLimitSettings(limits);
  const keyOf = singleKeyFunction(key, PrimitiveKeyError);
  return (target, propertyKey, descriptor) => {
    const named = fixedOptions(withTemplate(limits, templateNamed(key, target, propertyKey)));
    const interceptor = new RateLimitInterceptor(keyOf, named, onLimit);
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, RATE_LIMITS);
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

/** Takes of the limit, and runs the method if it may run. */
class RateLimitInterceptor implements MethodInterceptor {
  constructor(
    private readonly keyOf: (call: MethodCall) => string,
    private readonly options: RateLimitOptions,
    private readonly onLimit: OnLimit,
  ) {}

  get mayAnswer(): string | undefined {
    return this.onLimit === 'skip' ? 'a skipped call' : undefined;
  }

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const limited = await this.take(call);
    if (limited) {
      if (this.onLimit === 'throw') throw limited.error;
      return this.onLimit === 'skip' ? undefined : this.reaction(call, this.onLimit, limited);
    }
    const result = await call.proceed();
    if (isObservable(result)) throw undeclaredObservable(RATE_LIMITS, call, 'its caller would get a promise of it');
    return result;
  }

  interceptObservable(call: MethodCall): Observable<unknown> {
    return defer(() => from(this.take(call))).pipe(
      switchMap((limited) => {
        if (!limited) return call.proceed() as Observable<unknown>;
        if (this.onLimit === 'throw') throw limited.error;
        if (this.onLimit === 'skip') return EMPTY;
        return emitted(this.reaction(call, this.onLimit, limited));
      }),
    );
  }

  private reaction(call: MethodCall, react: Exclude<OnLimit, string>, limited: LimitedCall): unknown {
    return call.answerBy((args) => react.call(call.instance, { ...limited, args }));
  }

  /** Resolves to `undefined` if the method may run. */
  private async take(call: MethodCall): Promise<LimitedCall | undefined> {
    const limiter = serviceOf(RATE_LIMITS, call);
    const key = this.keyOf(call);
    const decision: unknown = await limiter.take(key, this.options);
    if (!isDecision(decision)) throw mockedService(RATE_LIMITS, call);
    if (decision.allowed) return undefined;
    return { key, args: call.args, error: new RateLimitExceededError(key, decision.limit, decision.retryAfter) };
  }
}

/** A mocked limiter answers nothing. */
function isDecision(answer: unknown): answer is { allowed: boolean; limit: number; retryAfter: number } {
  return typeof answer === 'object' && answer !== null && 'allowed' in answer;
}
