import { withCaches } from '../cache-process.mjs';
import { count, sum, tableWith } from '../columns.mjs';

/** Is it remembered that there is nothing? Two processes ask, one after the other. */
export function absent({ title, note, peers, ...load }) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    round: (peer, context) =>
      withCaches(peer, context, async (open) => {
        const first = await (await open()).call('lookUpAbsent', load);
        const second = await (await open()).call('lookUpAbsent', load);
        return {
          loads: first.loads + second.loads,
          firstLoads: first.loads,
          secondLoads: second.loads,
          errors: first.errors + second.errors,
          firstError: first.firstError ?? second.firstError,
        };
      }),
    table: tableWith([
      count('loader calls', 'loads'),
      count('first process', 'firstLoads'),
      count('second process', 'secondLoads'),
      sum('errors', 'errors'),
    ]),
  };
}
