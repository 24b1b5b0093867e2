import { NotLeaderError } from '../errors/leader-errors.js';
import type { CandidateOptions } from '../primitives/leader/leader-options.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { proceedToEnd } from './returned-observable.js';
import { LEADERS, serviceOf } from './wiring/injected-services.js';

/** What a method does in a process that does not lead: resolve to `undefined`, or throw `NotLeaderError`. */
export type Elsewhere = 'skip' | 'throw';

/** Runs the method in the process that leads. Stands for the leadership, if the process does not yet. */
export class OnlyLeaderInterceptor implements MethodInterceptor {
  constructor(
    private readonly name: string,
    private readonly options: CandidateOptions,
    private readonly elsewhere: Elsewhere,
  ) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const candidacy = serviceOf(LEADERS, call).candidacyFor(this.name, this.options);
    await candidacy?.answered;
    if (candidacy?.isLeader) return candidacy.run(() => proceedToEnd(LEADERS, call));
    if (this.elsewhere === 'skip') return undefined;
    throw new NotLeaderError(this.name);
  }
}
