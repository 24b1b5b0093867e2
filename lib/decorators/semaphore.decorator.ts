import { isThrown } from '../errors/limited-log.js';
import { PrimitiveConfigError, PrimitiveKeyError, SemaphoreTimeoutError } from '../errors/primitive-errors.js';
import { withTemplate } from '../options/fixed-options.js';
import { primitiveOption } from '../options/option-checks.js';
import type { Permit } from '../primitives/semaphore/held-permit.js';
import { semaphoreSettings, type SemaphoreOptions } from '../primitives/semaphore/semaphore-options.js';
import { SEMAPHORES, serviceOf, type MethodCall } from '../wiring/injected-services.js';
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
import { singleKeyFunction, templateNamed } from './key-template.js';
import { noteBackend, wrapMethod, type MethodDecoration } from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

const DECORATOR = { name: 'Semaphore', ConfigError: PrimitiveConfigError };

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
  return (target, propertyKey, descriptor) => {
    const named = withTemplate(semaphore, templateNamed(key, target, propertyKey));
    const held = holdOptions<SemaphoreOptions>(named, signal, primitiveOption);
    const interceptor = new SemaphoreInterceptor(keyOf, held, onBusy);
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, SEMAPHORES);
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

/** Takes a permit, runs the method, gives it back. The method never runs without a permit. */
class SemaphoreInterceptor extends HoldingInterceptor<Permit, SemaphoreTimeoutError> {
  constructor(
    private readonly keyOf: (call: MethodCall) => string,
    private readonly options: HoldOptions<SemaphoreOptions>,
    onBusy: OnNoPermit,
  ) {
    super(SEMAPHORES, 'permit', onBusy);
  }

  protected hold<T>(call: MethodCall, left: AbortSignal | undefined, body: (permit: Permit) => Promise<T>): Promise<T> {
    return serviceOf(SEMAPHORES, call).withPermit(this.keyOf(call), optionsOf(this.options, call, left), body);
  }

  protected isBusy(error: unknown): error is SemaphoreTimeoutError {
    return isThrown(error, SemaphoreTimeoutError);
  }
}
