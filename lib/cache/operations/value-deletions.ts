import { cacheOption } from '../../options/option-checks.js';
import type { DoubleDeletionTarget } from '../invalidation/double-deletions.js';
import type { DeleteMatchingRequest } from '../../contracts/cache-store.js';
import type { DeleteMatchingOptions, DoubleDeleteOptions } from '../api/cache-deletions.js';
import type { KeyScope } from '../api/key-scope.js';

const DEFAULT_BATCH = 100;

/** How many keys to look at in one step. @throws CacheConfigError */
export function batchOf(batch: number = DEFAULT_BATCH): number {
  cacheOption.require(Number.isSafeInteger(batch) && batch >= 1, 'batch', batch, 'a whole number from 1 on');
  return batch;
}

/** Deletes the values of all keys that match, and returns how many there were. The prefix or pattern is full. */
export function deleteMatching(
  scope: KeyScope,
  match: DeleteMatchingRequest['match'],
  { batch, ...options }: DeleteMatchingOptions = {},
): Promise<number> {
  const request = { match, batch: batchOf(batch) };
  return scope.engine.matchingDeletions.delete(request, scope.settings(options).failOpen);
}

/** Deletes before and after the write, and once more after `delay`. The keys or the prefix are full. */
export function deleteTwice<T>(
  scope: KeyScope,
  target: DoubleDeletionTarget,
  write: () => Promise<T>,
  { delay, ...options }: DoubleDeleteOptions,
): Promise<T> {
  const wait = cacheOption.timerMilliseconds('delay', delay, 1);
  return scope.engine.doubleDeletions.run(target, write, wait, scope.settings(options).failOpen);
}
