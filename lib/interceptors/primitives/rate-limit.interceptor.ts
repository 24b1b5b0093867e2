import { defer, EMPTY, from, isObservable, of, switchMap, type Observable } from 'rxjs';
import { RateLimitExceededError } from '../../errors/primitive-errors.js';
import type { RateLimitOptions } from '../../primitives/rate-limit/rate-limit-options.js';
import type { MethodCall, MethodInterceptor } from '../method-interceptor.js';
import { undeclaredObservable } from '../returned-observable.js';
import { mockedService, RATE_LIMITS, serviceOf } from '../wiring/injected-services.js';

/** The argument of `onLimit`. */
export interface LimitedCall {
  readonly key: string;
  readonly args: readonly unknown[];
  readonly error: RateLimitExceededError;
}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). */
export type OnLimit = 'throw' | 'skip' | ((limited: LimitedCall) => unknown);

/** Takes of the limit, and runs the method if it may run. */
export class RateLimitInterceptor implements MethodInterceptor {
  constructor(
    private readonly keyOf: (args: readonly unknown[]) => string,
    private readonly options: RateLimitOptions,
    private readonly onLimit: OnLimit,
  ) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const limited = await this.take(call);
    if (!limited) return this.result(call);
    if (this.onLimit === 'throw') throw limited.error;
    return this.onLimit === 'skip' ? undefined : this.onLimit(limited);
  }

  interceptObservable(call: MethodCall): Observable<unknown> {
    return defer(() => from(this.take(call))).pipe(
      switchMap((limited) => {
        if (!limited) return call.proceed() as Observable<unknown>;
        if (this.onLimit === 'throw') throw limited.error;
        if (this.onLimit === 'skip') return EMPTY;
        const value = this.onLimit(limited);
        return isObservable(value) ? value : of(value);
      }),
    );
  }

  private async result(call: MethodCall): Promise<unknown> {
    const result = await call.proceed();
    if (isObservable(result)) throw undeclaredObservable(RATE_LIMITS, call, 'its caller would get a promise of it');
    return result;
  }

  /** Resolves to `undefined` if the method may run. */
  private async take(call: MethodCall): Promise<LimitedCall | undefined> {
    const { args } = call;
    const limiter = serviceOf(RATE_LIMITS, call);
    const key = this.keyOf(args);
    const decision: unknown = await limiter.take(key, this.options);
    if (!isDecision(decision)) throw mockedService(RATE_LIMITS, call);
    if (decision.allowed) return undefined;
    return { key, args, error: new RateLimitExceededError(key, decision.limit, decision.retryAfter) };
  }
}

/** A mocked limiter answers nothing. */
function isDecision(answer: unknown): answer is { allowed: boolean; limit: number; retryAfter: number } {
  return typeof answer === 'object' && answer !== null && 'allowed' in answer;
}
