import { setImmediate as turn } from 'node:timers/promises';
import { firstLine } from '../../first-line.mjs';
import { inParallel } from '../in-parallel.mjs';
import { TTL } from '../rows.mjs';

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
