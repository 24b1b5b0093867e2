import { BoundedCall } from '../calls/bounded-call.js';
import { BoundedCalls, type Diagnosable } from '../calls/bounded-calls.js';
import type { CircuitBreaker } from '../calls/circuit-breaker.js';
import type { Pending } from '../contracts/pending.js';
import { PrimitiveBackendError } from '../errors/primitive-errors.js';
import { Timeouts } from '../timing/timeouts.js';

interface CallOptions<T> {
  readonly late?: (answer: T) => void;
  /** In ms; `commandTimeout` by default. */
  readonly limit?: number;
}

/** The calls of the primitives to one backend. Each fails after `commandTimeout` ms without an answer. */
export class PrimitiveCalls extends BoundedCalls<string, PrimitiveBackendError> {
  readonly breaker: CircuitBreaker | undefined = undefined;
  /** A standstill of this process does not count, so that an answer that has arrived is always read. */
  readonly limits = new Timeouts({ countsStandstills: false });

  constructor(
    backend: Diagnosable,
    readonly commandTimeout: number,
  ) {
    super(backend);
  }

  /**
   * `operation` as in "take of a permit"; `key` is the one concerned. An answer after the time limit goes to `late`:
   * the call may have taken what nobody wants any more.
   *
   * @throws PrimitiveBackendError when the backend fails, or does not answer within `limit` ms
   */
  run<T>(operation: string, key: string, call: () => Pending<T>, options: CallOptions<T> = {}): Promise<T> {
    return new Promise((resolve, reject) => this.ask(operation, key, call, resolve, reject, options));
  }

  /** As `run`, without a promise of its own: with `AsyncLocalStorage` each one takes time. */
  ask<T>(
    operation: string,
    key: string,
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: PrimitiveBackendError) => void,
    { late, limit = this.commandTimeout }: CallOptions<T> = {},
  ): void {
    // The call first: the backend is at work while this process notes the time limit.
    const pending = begun(call);
    const bounded = new BoundedCall(this, operation, key, limit, answered, failed, late);
    pending.then(bounded.onAnswer, bounded.onError);
  }

  failure(operation: string, key: string, why: string, cause?: unknown): PrimitiveBackendError {
    return new PrimitiveBackendError(`The ${operation} "${key}" failed: ${why}`, [key], cause);
  }
}

function begun<T>(call: () => Pending<T>): Pending<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject<T>(error);
  }
}
