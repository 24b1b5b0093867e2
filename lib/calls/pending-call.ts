import type { BackendCalls } from '../lock/backend/backend-calls.js';
import type { LockBackendError } from '../errors/lock-errors.js';
import type { Expiring, Timeout } from '../timing/timeouts.js';

/**
 * One request to a backend, which counts as failed after `limit` ms. An answer that comes later still goes to
 * `answered`: it may be a grant that nobody wants any more. Callbacks rather than promises: with `AsyncLocalStorage`
 * each promise of the path that every lock takes has its price.
 */
export class PendingCall<T> implements Expiring {
  private readonly timeout: Timeout;
  private expired = false;

  constructor(
    private readonly calls: BackendCalls,
    private readonly operation: string,
    private readonly names: readonly string[],
    private readonly limit: number,
    private readonly answered: (answer: T) => void,
    private readonly failed: (error: LockBackendError) => void,
  ) {
    this.timeout = calls.timeouts.start(limit, this);
  }

  readonly onAnswer = (answer: T): void => {
    this.timeout.leave();
    this.answered(answer);
  };

  readonly onError = (error: unknown): void => {
    if (this.expired) return;
    this.timeout.leave();
    this.failed(this.calls.explain(this.operation, this.names, error));
  };

  expire(): void {
    this.expired = true;
    this.failed(this.calls.unanswered(this.operation, this.names, this.limit));
  }
}
