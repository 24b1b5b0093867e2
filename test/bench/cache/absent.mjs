import { setImmediate as turn } from 'node:timers/promises';
import { firstLine } from '../figures.mjs';
import { withCaches } from './cache-process.mjs';
import { count, sum, tableWith } from './columns.mjs';
import { inParallel, TTL } from './rows.mjs';

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

/** Looks up ids that do not exist: their loader finds `null`. */
export async function lookUpAbsent(cache, { lookups, ids, callers }) {
  const figures = { loads: 0, errors: 0, firstError: undefined };
  const loader = async () => {
    figures.loads += 1;
    await turn();
    return null;
  };
  await inParallel(callers, lookups, async (lookup) => {
    try {
      // Coprime to the number of ids, so that all of them have their turn.
      const value = await cache.getOrSet(`absent:${(lookup * 7_919) % ids}`, loader, { ttl: TTL });
      if (value !== null && value !== undefined) throw new Error(`the answer was ${JSON.stringify(value)}`);
    } catch (error) {
      figures.errors += 1;
      figures.firstError ??= firstLine(error);
    }
  });
  return figures;
}
