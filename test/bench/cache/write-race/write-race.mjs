import { withCaches } from '../cache-process.mjs';
import { sum, tableWith } from '../columns.mjs';
import { OLD } from '../rows.mjs';

const KEYS = 100;
const BATCHES = 10;
/** Further ones, in which others ask for the keys before the loaders have returned. */
const LATE_BATCHES = 2;

/**
 * A loader has read the old row and is slow; the row changes and is invalidated; then the loader returns. `by` says
 * which process invalidates: `loader` or `other`.
 */
export function writeRace({ title, note, peers, by }) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    turns: () => 1,
    round: (peer, context) =>
      withCaches(peer, context, async (open) => {
        const [loader, other] = [await open(), await open()];
        const caches = { loader, other, invalidating: by === 'loader' ? loader : other };
        const total = { trials: 0, left: 0, served: 0, servedByOther: 0, late: 0, errors: 0, failed: 0 };
        for (let batch = 0; batch < BATCHES; batch++) await race(caches, keysOf(batch), total, context.control);
        for (let batch = 0; batch < LATE_BATCHES; batch++) await raceOfLate(caches, keysOf(`late-${batch}`), total);
        return total;
      }),
    table: tableWith([
      sum('trials', 'trials'),
      sum('old row left in Redis', 'left'),
      sum('served by the loading process', 'served'),
      sum('served by the other', 'servedByOther'),
      sum(`served to later callers, of ${KEYS * LATE_BATCHES}`, 'late'),
      sum('errors', 'errors'),
      sum('invalidations failed', 'failed'),
    ]),
  };
}

function keysOf(batch) {
  return Array.from({ length: KEYS }, (_, index) => `race:${batch}:${index}`);
}

async function race({ loader, other, invalidating }, keys, total, control) {
  await loader.call('beginRace', { keys });
  total.failed += (await invalidating.call('invalidate', { keys })).failed;
  total.errors += (await loader.call('endRace')).errors;
  total.trials += keys.length;
  total.left += await control.countHolding(OLD, `*${keys[0].replace(/\d+$/, '')}*`);
  const [mine, theirs] = [await loader.call('countOld', { keys }), await other.call('countOld', { keys })];
  total.served += mine.old;
  total.servedByOther += theirs.old;
  total.errors += mine.errors + theirs.errors;
}

async function raceOfLate({ loader, invalidating }, keys, total) {
  await loader.call('beginRace', { keys });
  total.failed += (await invalidating.call('invalidate', { keys })).failed;
  await loader.call('joinRace', { keys });
  const { errors, lateOld } = await loader.call('endRace');
  total.errors += errors;
  total.late += lateOld;
}
