import type { BackendCalls } from '../backend-calls.js';
import type { LockBackendError } from '../lock-errors.js';
import type { Expiring } from '../timeouts.js';

/**
 * One request of a contender, bounded in time. An answer that comes later still goes to `answered`: it may be a grant that
 * nobody wants any more.
 */
export class PendingCall<T> implements Expiring {
  expiresAt = 0;
  private expired = false;

  constructor(
    private readonly calls: BackendCalls,
    private readonly operation: string,
    private readonly name: string,
    call: Promise<T>,
    answered: (answer: T) => void,
    private readonly failed: (error: LockBackendError) => void,
  ) {
    const { timeouts, commandTimeout } = calls;
    timeouts.start(commandTimeout, this);
    call.then(
      (answer) => {
        timeouts.cancel(commandTimeout, this);
        answered(answer);
      },
      (error: unknown) => {
        if (this.expired) return;
        timeouts.cancel(commandTimeout, this);
        failed(calls.explain(operation, [name], error));
      },
    );
  }

  expire(): void {
    this.expired = true;
    this.failed(this.calls.unanswered(this.operation, [this.name], this.calls.commandTimeout));
  }
}
