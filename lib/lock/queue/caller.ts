import type { Lease } from '../lease.js';
import type { ResolvedLockOptions } from '../lock-options.js';
import type { Expiring, Timeouts } from '../timeouts.js';
import type { CancellationListener, WaitBudget } from '../wait-budget.js';

/** Whoever a caller waits with. */
export interface CallerHost {
  /** The time of the caller is over; or its wait was cancelled, for a reason. */
  leave(caller: Caller, cancelled?: { reason: unknown }): void;
}

/** One call that waits for its turn in the queue of this process. */
export class Caller implements Expiring, CancellationListener {
  expiresAt = Infinity;
  /** Its neighbours in the queue. */
  before: Caller | undefined;
  after: Caller | undefined;
  queued = false;

  constructor(
    readonly options: ResolvedLockOptions,
    readonly budget: WaitBudget,
    private readonly host: CallerHost,
    private readonly timeouts: Timeouts,
    private readonly resolve: (lease: Lease) => void,
    private readonly reject: (error: unknown) => void,
  ) {
    const { wait } = options;
    if (wait > 0 && wait !== Infinity) timeouts.start(wait, this);
    budget.listener = this;
  }

  /** Tries once, whatever the answer. */
  get triesOnce(): boolean {
    return this.options.wait === 0;
  }

  expire(): void {
    this.host.leave(this);
  }

  cancelled(reason: unknown): void {
    this.host.leave(this, { reason });
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
    if (this.expiresAt !== Infinity) this.timeouts.cancel(this.options.wait, this);
    this.budget.listener = undefined;
  }
}
