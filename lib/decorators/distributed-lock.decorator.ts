import { isThrown } from '../errors/limited-log.js';
import { LockConfigError, LockKeyError, LockTimeoutError } from '../errors/lock-errors.js';
import type { Lock } from '../lock/hold/lock.js';
import { resolveLockOptions, type LockOptions } from '../lock/options/lock-options.js';
import { withTemplate } from '../options/fixed-options.js';
import { lockOption } from '../options/option-checks.js';
import { LOCKS, serviceOf, type MethodCall } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import {
  HoldingInterceptor,
  holdOptions,
  optionsOf,
  requireReaction,
  type BusyCall,
  type HoldOptions,
} from './holding.js';
import { keyFunction, templateNamed, type AnyKey } from './key-template.js';
import { noteBackend, wrapMethod, type MethodDecoration } from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

const DECORATOR = { name: 'DistributedLock', ConfigError: LockConfigError };

/** Lock options, and what a call does when it finds the lock busy. */
export interface DistributedLockOptions extends Omit<LockOptions, 'signal'> {
  /**
   * Ends the wait, which then rejects with `signal.reason`: one signal for all calls, or a function of the method's
   * arguments that returns that of the call. Has no effect once the lock is held.
   */
  signal?: AbortSignal | OfArguments<AbortSignal | undefined>;
  /**
   * What a call does when the lock was busy for `wait` ms: throw the `LockTimeoutError` (`'throw'`), resolve to
   * `undefined` (`'skip'`; an Observable completes at once), or resolve to the result of a function.
   * @default 'throw'
   */
  onBusy?: OnBusy;
}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). @inline */
export type OnBusy = 'throw' | 'skip' | ((busy: BusyCall) => unknown);

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
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string | readonly string[]),
  options?: DistributedLockOptions & Inferred<Options, 'onBusy' | 'signal'>,
): CheckedMethodDecorator<'DistributedLock', Key, Arguments, Options, This>;
export function DistributedLock(
  key: AnyKey,
  { onBusy = 'throw', signal, ...options }: DistributedLockOptions = {},
): MethodDecoration {
  requireReaction('onBusy', onBusy, lockOption);
  resolveLockOptions(typeof signal === 'function' ? options : ({ ...options, signal } as LockOptions));
  const keysOf = keyFunction(key, LockKeyError);
  return (target, propertyKey, descriptor) => {
    const named = withTemplate(options, templateNamed(key, target, propertyKey));
    const held = holdOptions<LockOptions>(named, signal, lockOption);
    const interceptor = new DistributedLockInterceptor(keysOf, held, onBusy);
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, LOCKS);
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

/** Acquires the lock, runs the method, releases. The method never runs without the lock. */
class DistributedLockInterceptor extends HoldingInterceptor<Lock, LockTimeoutError> {
  constructor(
    private readonly keysOf: (call: MethodCall) => string | readonly string[],
    private readonly options: HoldOptions<LockOptions>,
    onBusy: OnBusy,
  ) {
    super(LOCKS, 'lock', onBusy);
  }

  protected hold<T>(call: MethodCall, left: AbortSignal | undefined, body: (lock: Lock) => Promise<T>): Promise<T> {
    return serviceOf(LOCKS, call).withLock(this.keysOf(call), optionsOf(this.options, call, left), body);
  }

  protected isBusy(error: unknown): error is LockTimeoutError {
    return isThrown(error, LockTimeoutError);
  }
}
