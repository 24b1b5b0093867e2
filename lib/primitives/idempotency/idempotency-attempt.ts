import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lock } from '../../lock/lock.js';

/** One run of an idempotent method. */
export interface IdempotencyAttempt {
  readonly key: string;
  /**
   * Counts the attempts with this key that have begun, from 1. Above 1, an earlier one died, failed, lost its lock, or
   * could not store its result: what it did may have taken effect, in part or as a whole.
   */
  readonly attempt: number;
  /**
   * The lock around the run: its `signal` is aborted, and `assertHeld()` throws, once another attempt may begin; its
   * `fencingToken` rises with each attempt.
   */
  readonly lock: Lock;
}

const storage = new AsyncLocalStorage<IdempotencyAttempt>();

/** The innermost attempt around the running code. */
export function currentAttempt(): IdempotencyAttempt | undefined {
  return storage.getStore();
}

/** Runs `body` as this attempt. */
export function withinAttempt<T>(attempt: IdempotencyAttempt, body: (attempt: IdempotencyAttempt) => T): T {
  return storage.run(attempt, body, attempt);
}
