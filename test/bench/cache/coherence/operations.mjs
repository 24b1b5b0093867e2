import { setImmediate as turn } from 'node:timers/promises';
import { microseconds } from '../../clock.mjs';
import { NEW, rowOf, TTL } from '../rows.mjs';
import { within } from '../within.mjs';

const PATIENCE = 5_000;

let watching;

/** Reads the key without pause until the new row is there, for at most this number of ms. */
export async function startWatching(cache, { key, most }) {
  watching = watch(cache, key, microseconds() + most * 1_000);
  // stopWatching reports the error.
  watching.catch(() => {});
}

/** When the last read began that was answered with the old row. */
export function stopWatching() {
  return watching;
}

async function watch(cache, key, end) {
  for (let lastOld = 0; ;) {
    const begin = microseconds();
    const { state } = await cache.getOrSet(key, async () => rowOf(key, NEW), { ttl: TTL });
    if (state === NEW) return { lastOld, seen: true };
    lastOld = begin;
    if (begin > end) return { lastOld, seen: false };
    await turn();
  }
}

/** Answers when the invalidation had ended. */
export async function invalidateOne(cache, { key }) {
  await within(PATIENCE, Promise.resolve(cache.invalidate(key)));
  return { ended: microseconds() };
}
