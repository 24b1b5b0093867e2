import { LockKeyError, LockTimeoutError } from '../errors/lock-errors.js';
import { resolveLockOptions, type LockOptions } from '../lock/options/lock-options.js';
import { lockOption } from '../options/option-checks.js';
import { LOCKS } from '../wiring/injected-services.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { holdingDecoration, requireReaction, type BusyCall } from './holding.js';
import { keyFunction, type AnyKey } from './key-template.js';
import type { MethodDecoration } from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

const LOCK = {
  name: 'DistributedLock',
  injected: LOCKS,
  method: 'withLock',
  noun: 'lock',
  BusyError: LockTimeoutError,
  checks: lockOption,
} as const;

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
export function DistributedLock(key: AnyKey, given: DistributedLockOptions = {}): MethodDecoration {
  lockOption.object('options', given, 'an object of lock options');
  const { onBusy = 'throw', signal, ...options } = given;
  requireReaction('onBusy', onBusy, lockOption);
  resolveLockOptions(typeof signal === 'function' ? options : ({ ...options, signal } as LockOptions));
  const keyOf = keyFunction(key, LockKeyError);
  return holdingDecoration(LOCK, { key, keyOf, options, signal, onBusy });
}
