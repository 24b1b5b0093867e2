import type { ScheduleOptions } from '../primitives/schedule/schedule-options.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { proceedToEnd } from './returned-observable.js';
import { JOBS, serviceOf } from './wiring/injected-services.js';

/** Runs the method where the name of the job is free, and resolves to `undefined` elsewhere. */
export class ScheduledLockInterceptor implements MethodInterceptor {
  constructor(
    private readonly name: string,
    private readonly options: ScheduleOptions,
  ) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    return serviceOf(JOBS, call).run(this.name, this.options, () => proceedToEnd(JOBS, call));
  }
}
