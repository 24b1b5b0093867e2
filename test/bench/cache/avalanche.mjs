import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { withCaches } from './cache-process.mjs';
import { count, middle, tableWith } from './columns.mjs';
import { fill, NEW, rowOf, TTL } from './rows.mjs';

/** Do values that were stored together run out together? */
export function avalanche({ title, note, peers, ...load }) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    turns: () => 1,
    round: (peer, context) =>
      withCaches(peer, context, async (open) => {
        const cache = await open();
        return cache.call('readWhileTheyRunOut', load, load.ttl * 2 + 60_000);
      }),
    table: tableWith([
      count('loader calls', 'loads'),
      count('peak in 100 ms', 'peak'),
      count('stored per 100 ms', 'stored'),
      middle('peak / stored', 'bunching'),
      count('reads', 'reads'),
    ]),
  };
}

/** The interval in which loads are counted, in ms. */
const INTERVAL = 100;

/** Stores values as fast as it can, with one ttl, and reads them without pause while they run out. */
export async function readWhileTheyRunOut(cache, { keys, ttl, callers, loaderMs }) {
  const filled = await fill(cache, { keys, ttl, callers, prefix: 'a' });
  // Leaves room for a jitter of 15 %.
  await sleep(Math.max(0, ttl * 0.85 - filled.ms));
  const end = performance.now() + filled.ms + ttl * 0.3 + 500;
  const loads = [];
  let reads = 0;
  const call = async () => {
    while (performance.now() < end) {
      const id = (reads * 7_919) % keys;
      reads += 1;
      const loader = async () => {
        loads.push(performance.now());
        await sleep(loaderMs);
        return rowOf(id, NEW);
      };
      await cache.getOrSet(`a:${id}`, loader, { ttl: TTL });
      if (reads % 64 === 0) await turn();
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  const stored = (keys / filled.ms) * INTERVAL;
  const peak = mostWithin(INTERVAL, loads);
  return { loads: loads.length, peak, stored, bunching: peak / stored, reads };
}

/** The greatest number of times, which are in order, within one interval. */
function mostWithin(interval, times) {
  let most = 0;
  let first = 0;
  for (const [index, time] of times.entries()) {
    while (time - times[first] > interval) first += 1;
    most = Math.max(most, index - first + 1);
  }
  return most;
}
