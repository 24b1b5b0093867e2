import type { LockBackendError } from './lock-errors.js';

/** What is known when the next delay is asked for. */
export interface RetryState {
  /** How many tries were made: 1 after the first. */
  readonly attempt: number;
  /** Milliseconds left of the holder's lease; absent when the last try failed. */
  readonly remaining?: number;
  /** Why the last try failed; absent when it found the lock busy. */
  readonly error?: LockBackendError;
}

/** Iterates over delays in ms. `next` is given the state of the wait; `done` gives up before `wait` has passed. */
export interface RetryDelays {
  /** Called after each try that found the lock busy. */
  next(state: RetryState): IteratorResult<number, unknown>;
}

/**
 * How a waiter paces its tries where the backend cannot push: called once for each wait. Whatever it answers, a waiter
 * never sleeps beyond the holder's lease nor longer than a second.
 */
export type RetryStrategy = () => RetryDelays;

/** The same delay (ms) between all tries. */
export function fixedDelay(delay: number): RetryStrategy {
  requireDelay('fixedDelay(delay)', delay);
  return () => ({ next: () => ({ done: false, value: delay }) });
}

/**
 * Doubles an upper bound from `min` to `max` (ms, default 10 and 200) and draws each delay between `min` and that bound:
 * "full jitter" of the AWS Architecture Blog (Exponential Backoff And Jitter, 2015), but never below `min`.
 */
export function exponentialBackoff({ min = 10, max = 200 }: { min?: number; max?: number } = {}): RetryStrategy {
  requireDelay('exponentialBackoff({ min })', min);
  requireDelay('exponentialBackoff({ max })', max);
  if (max < min) throw new RangeError(`exponentialBackoff: max (${max}) is below min (${min}); swap them`);
  return () => {
    let bound = min;
    return {
      next: () => {
        bound = Math.min(bound * 2, max);
        return { done: false, value: min + Math.random() * (bound - min) };
      },
    };
  };
}

/** Gives up after `retries` delays of another strategy. */
export function limitedRetries(retries: number, strategy: RetryStrategy): RetryStrategy {
  if (!Number.isInteger(retries) || retries < 0) {
    throw new RangeError(`limitedRetries(retries) is ${retries}; give a whole number of 0 or more`);
  }
  return () => {
    const delays = strategy();
    return {
      next: (state) => (state.attempt > retries ? { done: true, value: undefined } : delays.next(state)),
    };
  };
}

function requireDelay(name: string, delay: number): void {
  if (!Number.isFinite(delay) || delay < 1) {
    throw new RangeError(`${name} is ${delay}; give a number of milliseconds of 1 or more`);
  }
}
