import { PrimitiveKeyError, SemaphoreTimeoutError } from '../errors/primitive-errors.js';
import { primitiveOption } from '../options/option-checks.js';
import { semaphoreSettings, type SemaphoreOptions } from '../primitives/semaphore/semaphore-options.js';
import { SEMAPHORES } from '../wiring/injected-services.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { holdingDecoration, requireReaction, type BusyCall } from './holding.js';
import { singleKeyFunction } from './key-template.js';
import type { MethodDecoration } from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

const PERMIT = {
  name: 'Semaphore',
  injected: SEMAPHORES,
  method: 'withPermit',
  noun: 'permit',
  BusyError: SemaphoreTimeoutError,
  checks: primitiveOption,
} as const;

/** Semaphore options, and what a call does when it gets no permit. */
export interface SemaphoreMethodOptions extends Omit<SemaphoreOptions, 'signal'> {
  /**
   * Ends the wait, which then rejects with `signal.reason`: one signal for all calls, or a function of the method's
   * arguments that returns that of the call. Has no effect once the permit is held.
   */
  signal?: AbortSignal | OfArguments<AbortSignal | undefined>;
  /**
   * What a call does when it got no permit in `wait` ms: throw the `SemaphoreTimeoutError` (`'throw'`), resolve to
   * `undefined` (`'skip'`; an Observable completes at once), or resolve to the result of a function.
   * @default 'throw'
   */
  onBusy?: OnNoPermit;
}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). @inline */
export type OnNoPermit = 'throw' | 'skip' | ((busy: BusyCall<SemaphoreTimeoutError>) => unknown);

/**
 * Runs at most `permits` calls of the method for each key at a time, over all processes; further calls wait their turn.
 *
 * The key is a template (`'report:<0>'`, `'report:<0.customer.id>'`) or a function of the method's arguments. Methods
 * with the same key share its permits.
 *
 * The clock of `wait` starts with the call. Inside the method, `SemaphoreService.current()` is the permit.
 *
 * @throws SemaphoreTimeoutError when the call got no permit in `wait` ms, unless `onBusy` says otherwise
 * @throws PermitLostError when the permit was lost before the method ended
 * @throws PrimitiveBackendError when the backend fails
 * @throws PrimitiveKeyError when the arguments make no valid key
 * @throws PrimitiveNotWiredError when Nest did not create the instance
 */
export function Semaphore<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends Pick<SemaphoreMethodOptions, 'onBusy' | 'signal'> = SemaphoreMethodOptions,
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string),
  options: SemaphoreMethodOptions & Inferred<Options, 'onBusy' | 'signal'>,
): CheckedMethodDecorator<'Semaphore', Key, Arguments, Options, This>;
export function Semaphore(
  key: string | ((...args: never[]) => string),
  options: SemaphoreMethodOptions,
): MethodDecoration {
  const given = primitiveOption.object('options', options, 'an object of semaphore options, such as { permits: 3 }');
  const { onBusy = 'throw', signal, ...semaphore } = given as SemaphoreMethodOptions;
  requireReaction('onBusy', onBusy, primitiveOption);
  semaphoreSettings(typeof signal === 'function' ? semaphore : ({ ...semaphore, signal } as SemaphoreOptions));
  const keyOf = singleKeyFunction(key, PrimitiveKeyError);
  return holdingDecoration(PERMIT, { key, keyOf, options: semaphore, signal, onBusy });
}
