import { SemaphoreTimeoutError } from '../errors/semaphore-errors.js';
import type { Permit } from '../primitives/semaphore/permit.js';
import type { SemaphoreOptions } from '../primitives/semaphore/semaphore-options.js';
import { eitherOf, HoldingInterceptor, type BusyMethodCall } from './holding.interceptor.js';
import type { MethodCall } from './method-interceptor.js';
import { SEMAPHORES, serviceOf } from './wiring/injected-services.js';

/** The argument of `onBusy`. */
export interface NoPermitCall extends BusyMethodCall<SemaphoreTimeoutError> {}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). */
export type OnNoPermit = 'throw' | 'skip' | ((busy: NoPermitCall) => unknown);

/** Takes a permit, runs the method, gives it back. The method never runs without a permit. */
export class SemaphoreInterceptor extends HoldingInterceptor<Permit, SemaphoreTimeoutError> {
  constructor(
    private readonly keyOf: (args: readonly unknown[]) => string,
    private readonly options: SemaphoreOptions,
    onBusy: OnNoPermit,
  ) {
    super(SEMAPHORES, 'permit', onBusy);
  }

  protected hold<T>(call: MethodCall, left: AbortSignal | undefined, body: (permit: Permit) => Promise<T>): Promise<T> {
    const options = left ? { ...this.options, signal: eitherOf(left, this.options.signal) } : this.options;
    return serviceOf(SEMAPHORES, call).withPermit(this.keyOf(call.args), options, body);
  }

  protected isBusy(error: unknown): error is SemaphoreTimeoutError {
    return error instanceof SemaphoreTimeoutError;
  }
}
