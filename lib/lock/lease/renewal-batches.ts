import type { Grant } from './grant.js';

/**
 * How many names are renewed in one call (those of one grant stay together), as in Redisson's `lockWatchdogBatchSize`.
 */
const BATCH = 100;

/** The grants in batches of as many names as one call renews. */
export function batchesOf(grants: readonly Grant[]): Grant[][] {
  const batches: Grant[][] = [];
  let names = BATCH;
  for (const grant of grants) {
    names += grant.names.length;
    if (names <= BATCH) batches.at(-1)?.push(grant);
    else {
      batches.push([grant]);
      names = grant.names.length;
    }
  }
  return batches;
}
