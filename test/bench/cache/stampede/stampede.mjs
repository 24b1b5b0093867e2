import { microseconds } from '../../clock.mjs';
import { waitPercentiles } from '../../waits.mjs';
import { withCaches } from '../cache-process.mjs';
import { count, middle, sum, tableWith } from '../columns.mjs';

/** Until all processes have been told, in µs. */
const HEAD_START = 200_000;

/** Callers in several processes want the same key, which is not there and takes its time to load. */
export function stampede({ title, note, peers, processes, callers, loaderMs, once = false }) {
  const patience = loaderMs * 4 + 10_000;
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    ...(once && { turns: () => 1 }),
    round: (peer, context) =>
      withCaches(peer, context, async (open) => {
        const caches = await Promise.all(Array.from({ length: processes }, () => open()));
        // Connections and code are warm, the key is not.
        await Promise.all(caches.map((cache) => cache.call('fill', { keys: 50 })));
        const load = { key: 'stampede', callers, loaderMs, patience, at: microseconds() + HEAD_START };
        const seen = await Promise.all(caches.map((cache) => cache.call('stampede', load, patience + 20_000)));
        const total = (figure) => seen.reduce((all, each) => all + each[figure], 0);
        return {
          loads: total('loads'),
          errors: total('errors'),
          hangs: total('hangs'),
          firstError: seen.find(({ firstError }) => firstError !== undefined)?.firstError,
          ...waitPercentiles(seen.map(({ waits }) => waits)),
        };
      }),
    table: tableWith([
      count('loader calls', 'loads'),
      middle('p50 ms', 'p50'),
      middle('p99 ms', 'p99'),
      sum('errors', 'errors'),
      sum('hangs', 'hangs'),
      sum('uncaught', 'uncaught'),
    ]),
  };
}
