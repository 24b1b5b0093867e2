export const TTL = 600_000;

/** Which state of the database a row was read from. */
export const OLD = 'STALE-ROW';
export const NEW = 'FRESH-ROW';

const SIZE = 512;

/** What loaders return: its JSON has 512 bytes. */
export function rowOf(id, state) {
  const bare = { id, state, padding: '' };
  return { ...bare, padding: 'x'.repeat(SIZE - JSON.stringify(bare).length) };
}

const PATIENCE = 5_000;

/** Stores values under the prefix and numbers; answers how many ms that took. */
export async function fill(cache, { keys, callers = 200, ttl = TTL, prefix = 'k' }) {
  const begin = performance.now();
  await inParallel(callers, keys, (id) => cache.getOrSet(`${prefix}:${id}`, async () => rowOf(id, NEW), { ttl }));
  return { ms: performance.now() - begin };
}

/** Stores old rows under the keys. */
export async function storeOld(cache, { keys }) {
  await inParallel(50, keys.length, (index) => {
    return cache.getOrSet(keys[index], async () => rowOf(keys[index], OLD), { ttl: TTL });
  });
}

/** How many of the keys are answered with an old row; what is not stored is loaded, and new. */
export async function countOld(cache, { keys }) {
  let old = 0;
  let errors = 0;
  await inParallel(50, keys.length, async (index) => {
    try {
      const loader = async () => rowOf(keys[index], NEW);
      const row = await within(PATIENCE, cache.getOrSet(keys[index], loader, { ttl: TTL }));
      if (row?.state === OLD) old += 1;
    } catch {
      errors += 1;
    }
  });
  return { old, errors };
}

/** Invalidates all of the keys at once. */
export async function invalidate(cache, { keys }) {
  const ended = await Promise.allSettled(keys.map((key) => within(PATIENCE, Promise.resolve(cache.invalidate(key)))));
  const failed = ended.filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  return { failed: failed.length, hangs: failed.filter((reason) => reason instanceof HangError).length };
}

/** Calls `one` for each number below `total`, a given number of them at a time. */
export async function inParallel(callers, total, one) {
  let next = 0;
  const call = async () => {
    while (next < total) await one(next++);
  };
  await Promise.all(Array.from({ length: Math.min(callers, total) }, call));
}

/** What never answers must not end the benchmark. */
export class HangError extends Error {}

/** @throws HangError when the promise has not settled after the given ms */
export async function within(ms, promise) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new HangError(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}
