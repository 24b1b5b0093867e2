/** How many keys of one call are read or written at once. */
const MOST_AT_ONCE = 512;

/**
 * Calls `call` for each item at once, in order. The calls after the first batch have to await `go`, the end of the
 * batch before, so that the store does not get more at one time than it can answer. Resolves when all have settled.
 */
export function inBatches<T, R>(
  all: readonly T[],
  call: (each: T, go: Promise<unknown> | undefined) => Promise<R>,
): Promise<PromiseSettledResult<R>[]> {
  const results: Promise<R>[] = [];
  let go: Promise<unknown> | undefined;
  for (let first = 0; first < all.length; first += MOST_AT_ONCE) {
    const gate = go;
    const batch = all.slice(first, first + MOST_AT_ONCE).map((each) => call(each, gate));
    go = Promise.allSettled(batch);
    results.push(...batch);
  }
  return Promise.allSettled(results);
}

/** Throws the first error, once all have settled, so that no call goes on unobserved. */
export function valuesOf<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
