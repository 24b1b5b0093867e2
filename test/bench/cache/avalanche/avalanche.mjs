import { withCaches } from '../cache-process.mjs';
import { count, middle, tableWith } from '../columns.mjs';

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
        return cache.call('avalanche', load, load.ttl * 2 + 60_000);
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
