import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import type { IdempotencyOptions } from '../primitives/idempotency/idempotency-options.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { IDEMPOTENCY, mockedService, serviceOf } from './wiring/injected-services.js';

/** How a method is made idempotent. */
export interface IdempotentMethod {
  readonly keyOf: (args: readonly unknown[]) => string;
  readonly options: IdempotencyOptions;
  /** Makes what is compared between the calls of a key, if anything. */
  readonly fingerprintOf: ((args: readonly unknown[]) => unknown) | undefined;
  readonly signal: ((...args: unknown[]) => AbortSignal | undefined) | undefined;
}

/** Answers with the kept result, or runs the method and keeps its result. */
export class IdempotentInterceptor implements MethodInterceptor {
  constructor(private readonly method: IdempotentMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { keyOf, options, fingerprintOf, signal } = this.method;
    const service = serviceOf(IDEMPOTENCY, call);
    const given = {
      ...options,
      ...(fingerprintOf && { fingerprint: fingerprintOf(call.args) }),
      ...(signal && { signal: signal(...call.args) }),
    };
    let ran = false;
    const value = await service.run(keyOf(call.args), given, async () => {
      ran = true;
      return call.proceed();
    });
    if (value === undefined && !ran && !(service instanceof IdempotencyService)) throw mockedService(IDEMPOTENCY, call);
    return value;
  }
}
