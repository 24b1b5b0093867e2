import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheStore } from '../../contracts/cache-store.js';
import type { StartRequest } from '../../contracts/start-request.js';
import { CacheBackendError } from '../../errors/cache-errors.js';

/** How many calls in a row a store may make at its start. */
const START_CALLS = 5;

/** @throws CacheBackendError when the store cannot serve, or answers nothing within the time of a few calls */
export async function startCacheStore(store: CacheStore, request: StartRequest): Promise<void> {
  const limit = START_CALLS * request.commandTimeout;
  const tooLate = sleep(limit, undefined, { ref: false }).then(() => {
    throw store.diagnose?.() ?? new Error(`no answer within ${limit} ms`);
  });
  try {
    await Promise.race([store.start?.(request) ?? store.ping(), tooLate]);
  } catch (error) {
    const cause = store.diagnose?.(error) ?? error;
    throw new CacheBackendError(
      `Cache: start failed: ${cause instanceof Error ? cause.message : String(cause)}`,
      [],
      cause,
    );
  }
}
