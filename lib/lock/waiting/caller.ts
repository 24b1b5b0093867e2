import type { Lease } from '../lease/lease.js';
import type { Place } from '../../timing/linked-list.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import type { CancellationListener, WaitBudget } from './wait-budget.js';

/** The queue that a caller waits in. */
export interface CallerHost {
  /** The time of the caller is over; or its wait was cancelled, for a reason. */
  leave(caller: Caller, cancelled?: { reason: unknown }): void;
}

/** One call that waits for its turn in the queue of this process. */
export class Caller implements Expiring, CancellationListener {
  /** In the queue. */
  place: Place<Caller> | undefined;
  /** Its time is over; it waits for the answer that is under way, and no longer. */
  overdue = false;
  private timeout: Timeout | undefined;

  constructor(
    readonly options: ResolvedLockOptions,
    readonly budget: WaitBudget,
    private readonly host: CallerHost,
    private readonly timeouts: Timeouts,
    private readonly onAdmitted: (lease: Lease) => void,
    private readonly onRefused: (error: unknown) => void,
  ) {
    const { wait } = options;
    if (wait > 0 && wait !== Infinity) this.timeout = timeouts.start(wait, this);
    budget.listener = this;
  }

  /** Tries once, whatever the answer. */
  get triesOnce(): boolean {
    return this.options.wait === 0;
  }

  expire(): void {
    this.host.leave(this);
  }

  /** Its time is over, and it stays for an answer that comes within `limit` ms. */
  awaitAnswer(limit: number): void {
    this.overdue = true;
    this.timeout = this.timeouts.start(limit, this);
  }

  cancelled(reason: unknown): void {
    this.host.leave(this, { reason });
  }

  admit(lease: Lease): void {
    this.settle();
    this.onAdmitted(lease);
  }

  refuse(error: unknown): void {
    this.settle();
    this.onRefused(error);
  }

  private settle(): void {
    this.place?.leave();
    this.timeout?.leave();
    this.budget.listener = undefined;
  }
}
