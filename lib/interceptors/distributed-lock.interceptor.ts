import type { Lock } from '../lock/lock.js';
import { LockTimeoutError } from '../errors/lock-errors.js';
import type { LockOptions } from '../lock/options/lock-options.js';
import { eitherOf, HoldingInterceptor, type BusyMethodCall } from './holding.interceptor.js';
import type { MethodCall } from './method-interceptor.js';
import { LOCKS, serviceOf } from './wiring/injected-services.js';

/** The argument of `onBusy`. */
export interface BusyCall extends BusyMethodCall<LockTimeoutError> {}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). */
export type OnBusy = 'throw' | 'skip' | ((busy: BusyCall) => unknown);

/** Acquires the lock, runs the method, releases. The method never runs without the lock. */
export class DistributedLockInterceptor extends HoldingInterceptor<Lock, LockTimeoutError> {
  constructor(
    private readonly keysOf: (args: readonly unknown[]) => string | readonly string[],
    private readonly options: LockOptions,
    onBusy: OnBusy,
  ) {
    super(LOCKS, 'lock', onBusy);
  }

  protected hold<T>(call: MethodCall, left: AbortSignal | undefined, body: (lock: Lock) => Promise<T>): Promise<T> {
    const options = left ? { ...this.options, signal: eitherOf(left, this.options.signal) } : this.options;
    return serviceOf(LOCKS, call).withLock(this.keysOf(call.args), options, body);
  }

  protected isBusy(error: unknown): error is LockTimeoutError {
    return error instanceof LockTimeoutError;
  }
}
