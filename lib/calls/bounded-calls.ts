import type { Timeouts } from '../timing/timeouts.js';
import type { CallRules } from './bounded-call.js';
import type { CircuitBreaker } from './circuit-breaker.js';

/** A backend or store that can say why a call failed. */
export interface Diagnosable {
  /** Names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
}

/** The errors and limits of the calls to one backend or store, with the cause that it diagnoses itself. */
export abstract class BoundedCalls<Subject, Failure extends Error> implements CallRules<Subject, Failure> {
  abstract readonly limits: Timeouts;
  abstract readonly breaker: CircuitBreaker | undefined;

  constructor(private readonly diagnosable: Diagnosable) {}

  /** Names the operation, what it was about, and why it failed. */
  abstract failure(operation: string, subject: Subject, why: string, cause?: unknown): Failure;

  explain(operation: string, subject: Subject, error: unknown): Failure {
    const cause = this.diagnosable.diagnose?.(error) ?? error;
    return this.failure(operation, subject, cause instanceof Error ? cause.message : String(cause), cause);
  }

  gaveUp(operation: string, subject: Subject, why: string): Failure {
    const cause = this.diagnosable.diagnose?.();
    return this.failure(operation, subject, cause ? `${why}: ${cause.message}` : why, cause);
  }
}
