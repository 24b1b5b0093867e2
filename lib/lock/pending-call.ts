import type { Pending } from '../backends/lock-backend.js';
import type { BackendCalls } from './backend-calls.js';
import type { LockBackendError } from './lock-errors.js';
import type { Expiring } from './timeouts.js';

/**
 * One request to a backend, which counts as failed after `limit` ms. An answer that comes later still goes to `answered`: it
 * may be a grant that nobody wants any more. Callbacks rather than promises: with `AsyncLocalStorage` each promise of the
 * path that every lock takes has its price.
 */
export class PendingCall<T> implements Expiring {
  private expired = false;

  constructor(
    private readonly calls: BackendCalls,
    private readonly operation: string,
    private readonly names: readonly string[],
    private readonly limit: number,
    call: Pending<T>,
    answered: (answer: T) => void,
    private readonly failed: (error: LockBackendError) => void,
  ) {
    const timeout = calls.timeouts.start(limit, this);
    call.then(
      (answer) => {
        timeout.leave();
        answered(answer);
      },
      (error: unknown) => {
        if (this.expired) return;
        timeout.leave();
        failed(calls.explain(operation, names, error));
      },
    );
  }

  expire(): void {
    this.expired = true;
    this.failed(this.calls.unanswered(this.operation, this.names, this.limit));
  }
}
