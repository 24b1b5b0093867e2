import type { Lease } from '../lease.js';
import type { ResolvedLockOptions } from '../lock-options.js';
import type { WaitBudget } from '../wait-budget.js';
import type { Timeout, Timeouts } from './timeouts.js';

/** One call that waits for its turn in the queue of this process. */
export class Caller {
  private timeout: Timeout | undefined;

  constructor(
    readonly options: ResolvedLockOptions,
    readonly budget: WaitBudget,
    private readonly resolve: (lease: Lease) => void,
    private readonly reject: (error: unknown) => void,
    private readonly timeouts: Timeouts,
  ) {}

  /** Tries once, whatever the answer. */
  get triesOnce(): boolean {
    return this.options.wait === 0;
  }

  /** Calls `leave` when the time is over, with nothing, or when the wait is cancelled, with why. */
  watch(leave: (cancelled?: { reason: unknown }) => void): void {
    const { wait } = this.options;
    if (wait > 0 && wait !== Infinity) this.timeout = this.timeouts.start(wait, () => leave());
    this.budget.onCancel = (reason) => leave({ reason });
  }

  admit(lease: Lease): void {
    this.settle();
    this.resolve(lease);
  }

  refuse(error: unknown): void {
    this.settle();
    this.reject(error);
  }

  private settle(): void {
    if (this.timeout) this.timeouts.cancel(this.options.wait, this.timeout);
    this.budget.onCancel = undefined;
  }
}
