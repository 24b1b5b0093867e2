import { CircuitBreaker } from '../../calls/circuit-breaker.js';
import type { Warnings } from '../../errors/limited-log.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type { Pending } from '../../contracts/pending.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { PrimitiveCalls } from '../primitive-calls.js';

const BREAKER = { errors: 3, open: 5_000 };

/**
 * The calls to the store of the rate limits. After the first call without an answer, or three failures in a row, calls
 * fail at once until the store replies to a PING, so that an outage does not cost each request `commandTimeout` ms.
 */
export class RateLimitCalls extends PrimitiveCalls {
  override readonly breaker: CircuitBreaker;

  constructor(backend: LockBackend, commandTimeout: number, warnings: Warnings) {
    super(backend, commandTimeout);
    this.breaker = new CircuitBreaker(
      BREAKER,
      () => backend.ping(),
      () => {
        const why = backend.diagnose?.()?.message;
        warnings.warn(
          `The store of the rate limits does not answer; until it does, onFailure decides${why ? ` (${why})` : ''}`,
        );
        this.breaker.interruptAll('the store does not answer');
      },
      () => {},
    );
  }

  override ask<T>(
    operation: string,
    key: string,
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: PrimitiveBackendError) => void,
  ): void {
    if (this.breaker.isOpen) failed(this.failure(operation, key, 'the circuit breaker is open'));
    else super.ask(operation, key, call, answered, failed);
  }

  override failure(operation: string, key: string, why: string, cause?: unknown): PrimitiveBackendError {
    return super.failure(`${operation} of the rate limit`, key, why, cause);
  }

  stop(): void {
    this.breaker.stop();
    this.breaker.interruptAll('the application has ended');
  }
}
