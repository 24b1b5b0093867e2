import { SemaphoreInterceptor, type NoPermitCall, type OnNoPermit } from '../../interceptors/semaphore.interceptor.js';
import { SEMAPHORES } from '../../interceptors/wiring/injected-services.js';
import { injectProperty } from '../../interceptors/wiring/package-copy.js';
import { PrimitiveConfigError, PrimitiveKeyError } from '../../errors/primitive-errors.js';
import { fixedOptions } from '../../options/fixed-options.js';
import { withTemplate } from '../../options/key-template-mark.js';
import { primitiveOption } from '../../options/option-checks.js';
import { semaphoreSettings, type SemaphoreOptions } from '../../primitives/semaphore/semaphore-options.js';
import type { EndsWithItsResult, HoldableMethod, MayBeSkipped } from '../holding/holdable-method.types.js';
import { singleKeyFunction, templateNamed } from '../key-function.js';
import type { FitsKeyTemplate, YieldsOneKey } from '../key-template.types.js';
import type { TakesArguments } from '../method.types.js';
import { noteBackend, refuseOwnAnswers, wrapMethod } from '../method-wrapping.js';
import { requireOnBusy } from '../holding/on-busy.js';

const DECORATOR = { name: 'Semaphore', ConfigError: PrimitiveConfigError };

/** Semaphore options, and what a call does when it gets no permit. */
export interface SemaphoreMethodOptions extends SemaphoreOptions {
  /**
   * What a call does when it got no permit in `wait` ms: throw the `SemaphoreTimeoutError` (`'throw'`), resolve to
   * `undefined` (`'skip'`; an Observable completes at once), or resolve to the result of a function.
   * @default 'throw'
   */
  onBusy?: OnNoPermit;
}

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
  const Options extends SemaphoreMethodOptions = SemaphoreMethodOptions,
>(
  key: Key | ((...args: Arguments) => string),
  options: Options,
): <Method extends HoldableMethod>(
  target: object,
  propertyKey: string | symbol,
  descriptor: TypedPropertyDescriptor<Method> &
    EndsWithItsResult<Method, { thePermitCannotCoverWhatThisPromiseResolvesTo: never }> &
    FitsKeyTemplate<Method, Key> &
    YieldsOneKey<Key> &
    TakesArguments<Method, Arguments> &
    MayBeSkipped<Method, Options>,
) => void;
export function Semaphore(
  key: string | ((...args: never[]) => string),
  options: SemaphoreMethodOptions,
): (target: object, propertyKey: string | symbol, descriptor: PropertyDescriptor) => void {
  const given = primitiveOption.object('options', options, 'an object of semaphore options, such as { permits: 3 }');
  const { onBusy = 'throw', ...semaphore } = given as SemaphoreMethodOptions;
  requireOnBusy(onBusy, primitiveOption);
  semaphoreSettings(semaphore);
  const keyOf = singleKeyFunction(key, PrimitiveKeyError);
  return (target, propertyKey, descriptor) => {
    if (onBusy === 'skip') refuseOwnAnswers(DECORATOR, target, propertyKey, 'a skipped call');
    const named = fixedOptions(withTemplate(semaphore, templateNamed(key, target, propertyKey)));
    const interceptor = new SemaphoreInterceptor(keyOf, named, onBusy);
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, SEMAPHORES);
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

export type { NoPermitCall };
