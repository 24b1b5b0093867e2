import { setTimeout as sleep } from 'node:timers/promises';
import { firstLine, microseconds, waitPercentiles, WaitRecorder } from '../figures.mjs';
import { withCaches } from './cache-process.mjs';
import { count, middle, sum, tableWith } from './columns.mjs';
import { HangError, NEW, rowOf, TTL, within } from './rows.mjs';

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
        const seen = await Promise.all(caches.map((cache) => cache.call('wantAtOnce', load, patience + 20_000)));
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

/** At one moment, by the clock of the machine, all callers want one key that is not there. */
export async function wantAtOnce(cache, { key, callers, loaderMs, at, patience }) {
  const figures = { loads: 0, errors: 0, hangs: 0, firstError: undefined };
  const recorder = new WaitRecorder();
  const loader = async () => {
    figures.loads += 1;
    await sleep(loaderMs);
    return rowOf('hot', NEW);
  };
  await sleep(Math.max(0, (at - microseconds()) / 1_000));
  const call = async () => {
    const begin = microseconds();
    try {
      const row = await within(patience, cache.getOrSet(key, loader, { ttl: TTL }));
      if (row?.id !== 'hot') throw new Error(`the answer was ${JSON.stringify(row)}`);
      recorder.record(microseconds() - begin);
    } catch (error) {
      figures[error instanceof HangError ? 'hangs' : 'errors'] += 1;
      figures.firstError ??= firstLine(error);
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  return { ...figures, waits: recorder.encoded() };
}
