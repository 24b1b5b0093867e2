/** Keys of one call that are read or written at once. */
const MOST_AT_ONCE = 512;

/** So many at once that each is answered in time. Rejects with the first error, once all have settled. */
export async function inBatches<T, R>(all: readonly T[], call: (each: T) => Promise<R>): Promise<R[]> {
  const results: PromiseSettledResult<R>[] = [];
  for (let first = 0; first < all.length; first += MOST_AT_ONCE) {
    results.push(...(await Promise.allSettled(all.slice(first, first + MOST_AT_ONCE).map(call))));
  }
  return valuesOf(results);
}

/** Rejects with the first error, once all have settled: none of them goes on unseen. */
export async function allSettled<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  return valuesOf(await Promise.allSettled(promises));
}

function valuesOf<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
