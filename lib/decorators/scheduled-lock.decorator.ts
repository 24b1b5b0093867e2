import { PrimitiveConfigError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import { withTemplate } from '../options/fixed-options.js';
import { scheduleOf, type ScheduleOptions } from '../primitives/schedule/schedule-options.js';
import { JOBS } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import { noteMethod } from '../wiring/noted-methods.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { proceedToEnd } from './holding.js';
import { compileSingleKeyTemplate, notedKey, requireNoPlaceholder } from './key-template.js';
import { noteBackend, serviceOf, wrapMethod, type MethodCall, type MethodInterceptor } from './method-wrapping.js';

const DECORATOR = { name: 'ScheduledLock', ConfigError: PrimitiveConfigError };

/**
 * Runs a scheduled method on one machine for each tick, however short it is: `@Cron`, `@Interval`, a BullMQ processor.
 * It stands above or below the decorator of the scheduler. The name may have properties of the instance
 * (`'nightly:<this.region>'`); it belongs to one method of one instance.
 *
 * A machine that finds the name taken skips its run at once: the call resolves to `undefined`, and
 * `ScheduledJobs.events` says so. Inside the method, `LockService.current()` is the lock; its signal aborts at
 * `atMostFor`.
 *
 * @throws LockLostError when the method ended after `atMostFor`, or its lock was taken away
 * @throws LockBackendError when the backend fails: the method did not run
 * @throws PrimitiveNotWiredError when Nest did not create the instance
 */
export function ScheduledLock<const Name extends string>(
  name: Name,
  options: ScheduleOptions,
): CheckedMethodDecorator<'ScheduledLock', Name, [], ScheduleOptions> {
  const checked = typeof name === 'string' ? name.replaceAll(/<#?this\.[^<>]*>/g, '-') : name;
  scheduleOf(checked, options);
  requireNoPlaceholder(checked, 'ScheduledJobs.run()', PrimitiveKeyError);
  const isFixed = checked === name;
  const nameOf = isFixed ? () => name : compileSingleKeyTemplate(name, PrimitiveKeyError);
  const interceptor = new ScheduledLockInterceptor(nameOf, withTemplate(options, name));
  return (target, propertyKey, descriptor) => {
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, JOBS);
    const fixed = { text: name, characters: Array.from(name), isComplete: true };
    const noted = isFixed ? { template: name, keysOn: () => fixed } : notedKey(name, PrimitiveKeyError);
    noteMethod(target, propertyKey, { decorator: 'ScheduledLock', ...noted, options: { ...options } });
    noteBackend(DECORATOR, target, propertyKey, options.backend);
  };
}

/** Runs the method where the name of the job is free, and resolves to `undefined` elsewhere. */
class ScheduledLockInterceptor implements MethodInterceptor {
  readonly mayAnswer = 'a skipped call';

  constructor(
    private readonly nameOf: (call: MethodCall) => string,
    private readonly options: ScheduleOptions,
  ) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    return serviceOf(JOBS, call).run(this.nameOf(call), this.options, () => proceedToEnd(JOBS, call));
  }
}
