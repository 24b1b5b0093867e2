import type { Observable } from 'rxjs';
import {
  DistributedLockInterceptor,
  type BusyCall,
  type OnBusy,
} from '../interceptors/distributed-lock.interceptor.js';
import { LOCKS } from '../interceptors/wiring/injected-services.js';
import { injectProperty } from '../interceptors/wiring/package-copy.js';
import { LockConfigError, LockKeyError } from '../errors/lock-errors.js';
import { resolveLockOptions, type LockOptions } from '../lock/options/lock-options.js';
import { fixedOptions } from '../options/fixed-options.js';
import { lockOption } from '../options/option-checks.js';
import { keyFunction, type AnyKey } from './key-function.js';
import type { FitsKeyTemplate } from './key-template.types.js';
import type { BeginsAfterItsPromise, ResolvesToNo, TakesArguments } from './method.types.js';
import { wrapMethod } from './method-wrapping.js';

const DECORATOR = { name: 'DistributedLock', ConfigError: LockConfigError };

/** Lock options, and what a call does that finds the lock busy. */
export interface DistributedLockOptions extends LockOptions {
  /**
   * What a call does that found the lock busy for `wait` ms: throw the `LockTimeoutError`, `'skip'` (resolve to
   * `undefined`; an Observable completes at once), or resolve to what a function returns.
   * @default 'throw'
   */
  onBusy?: OnBusy;
}

/** A method that can be locked: one that ends later than it returns. */
export type LockableMethod = (...args: never[]) => Promise<unknown> | Observable<unknown>;

type EndsWithItsResult<Method extends LockableMethod> = ResolvesToNo<
  BeginsAfterItsPromise,
  Method,
  { theLockCannotCoverWhatThisPromiseResolvesTo: never }
>;

/** `'skip'` needs a method that may resolve to `undefined`. */
type MayBeSkipped<Method extends LockableMethod, Options> = Options extends { onBusy: 'skip' }
  ? ReturnType<Method> extends Promise<infer Value>
    ? undefined extends Value
      ? unknown
      : void extends Value
        ? unknown
        : { onBusySkipNeedsAMethodThatMayResolveToUndefined: never }
    : unknown
  : unknown;

/**
 * Runs the method inside a lock, or not at all.
 *
 * A key is a template (`'order:<0>'`, `'order:<0.customer.id>'`, one lock per element: `'sku:<0.items.*.sku>'`), a list
 * of templates, or a function of the method's arguments. Several locks are taken all or nothing.
 *
 * The clock of `wait` starts with the call. Inside the method, `LockService.current()` is the lock.
 *
 * @throws LockTimeoutError when the lock is busy for `wait` ms, unless `onBusy` says otherwise
 * @throws LockLostError when the lock was lost before the method ended
 * @throws LockBackendError when the backend fails
 * @throws LockKeyError when the arguments make no valid key
 * @throws LockNotWiredError when Nest did not create the instance
 */
export function DistributedLock<
  const Key extends string | readonly string[] = never,
  Arguments extends unknown[] = [],
  const Options extends DistributedLockOptions = DistributedLockOptions,
>(
  key: Key | ((...args: Arguments) => string | readonly string[]),
  options?: Options,
): <Method extends LockableMethod>(
  target: object,
  propertyKey: string | symbol,
  descriptor: TypedPropertyDescriptor<Method> &
    EndsWithItsResult<Method> &
    FitsKeyTemplate<Method, Key> &
    TakesArguments<Method, Arguments> &
    MayBeSkipped<Method, Options>,
) => void;
export function DistributedLock(
  key: AnyKey,
  { onBusy = 'throw', ...options }: DistributedLockOptions = {},
): (target: object, propertyKey: string | symbol, descriptor: PropertyDescriptor) => void {
  requireOnBusy(onBusy);
  resolveLockOptions(options);
  const interceptor = new DistributedLockInterceptor(keyFunction(key, LockKeyError), fixedOptions(options), onBusy);
  return (target, propertyKey, descriptor) => {
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, LOCKS);
  };
}

export type { BusyCall };

function requireOnBusy(onBusy: unknown): void {
  if (onBusy === 'throw' || onBusy === 'skip' || typeof onBusy === 'function') return;
  throw lockOption.refused('onBusy', onBusy, "'throw', 'skip' or a function");
}
