import { inParallel } from '../in-parallel.mjs';
import { NEW, OLD, rowOf, TTL } from '../rows.mjs';
import { HangError, within } from '../within.mjs';

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
