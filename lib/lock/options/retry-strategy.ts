import { LockConfigError, type LockBackendError } from '../../errors/lock-errors.js';
import { callable, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';

/** The state of a wait when the next delay is asked for. */
export interface RetryState {
  /** How many attempts were made: 1 after the first. */
  readonly attempt: number;
  /** Milliseconds left of the holder's lease; absent when the last attempt failed. */
  readonly remaining?: number;
  /** Why the last attempt failed; absent when it found the lock busy. */
  readonly error?: LockBackendError;
}

/**
 * Iterates over delays in ms. `next` gets the state of the wait; `done` ends the wait before `wait` has passed.
 * @inline
 */
export type RetryDelays = {
  /** Called after each attempt that failed or found the lock busy. */
  next(state: RetryState): IteratorResult<number, unknown>;
};

/**
 * How a waiter spaces its attempts when the backend cannot push. Called once for each wait. Whatever the strategy
 * returns, a waiter never sleeps beyond the holder's lease nor longer than a second.
 */
export type RetryStrategy = () => RetryDelays;

/** The same delay between all attempts: 1 ms or more. @throws LockConfigError */
export function fixedDelay(delay: Duration): RetryStrategy {
  const value = lockOption.timerMilliseconds('fixedDelay(delay)', delay, 1);
  return () => ({ next: () => ({ done: false, value }) });
}

/**
 * Doubles an upper bound from `min` to `max` (default 10 and 200 ms) and draws each delay between `min` and that bound:
 * "full jitter" of the AWS Architecture Blog (Exponential Backoff And Jitter, 2015), but never below `min`.
 *
 * @throws LockConfigError
 */
export function exponentialBackoff(bounds: { min?: Duration; max?: Duration } = {}): RetryStrategy {
  lockOption.only('exponentialBackoff', bounds, ['min', 'max']);
  const { min = 10, max = 200 } = bounds;
  const least = lockOption.timerMilliseconds('exponentialBackoff({ min })', min, 1);
  const most = lockOption.timerMilliseconds('exponentialBackoff({ max })', max, 1);
  if (most < least) {
    throw new LockConfigError(`exponentialBackoff: max (${most} ms) is below min (${least} ms); swap them`);
  }
  return () => {
    let bound = least;
    return {
      next: () => {
        bound = Math.min(bound * 2, most);
        return { done: false, value: least + Math.random() * (bound - least) };
      },
    };
  };
}

/** Gives up after `retries` delays of another strategy. @throws LockConfigError */
export function limitedRetries(retries: number, strategy: RetryStrategy): RetryStrategy {
  if (!Number.isInteger(retries) || retries < 0) {
    throw lockOption.refused('limitedRetries(retries)', retries, 'a whole number of 0 or more');
  }
  callable()(strategy, 'limitedRetries(retries, strategy)', lockOption);
  return () => {
    const delays = strategy();
    return {
      next: (state) => (state.attempt > retries ? { done: true, value: undefined } : delays.next(state)),
    };
  };
}

/** Begins a wait. @throws LockConfigError when the strategy returns no iterator */
export function delaysOf(strategy: RetryStrategy): RetryDelays {
  const delays: unknown = strategy();
  const valid = typeof delays === 'object' && delays !== null && 'next' in delays && typeof delays.next === 'function';
  lockOption.require(valid, 'retry', delays, 'a function that returns an iterator of delays, with next()');
  return delays as RetryDelays;
}

/** The next delay in ms; `undefined` when the strategy gives up. @throws LockConfigError when it returns no delay */
export function nextDelay(delays: RetryDelays, state: RetryState): number | undefined {
  const result: IteratorResult<unknown, unknown> = delays.next(state);
  const remedy = '{ value } of a number of milliseconds, 0 or more, from each next(), or { done: true } to give up';
  lockOption.require(typeof result === 'object' && result !== null, 'retry', result, remedy);
  if (result.done) return undefined;
  const { value } = result;
  lockOption.require(typeof value === 'number' && value >= 0, 'retry', value, remedy);
  return value as number;
}
