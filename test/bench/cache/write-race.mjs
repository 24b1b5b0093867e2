import { setTimeout as sleep } from 'node:timers/promises';
import { withCaches } from './cache-process.mjs';
import { sum, tableWith } from './columns.mjs';
import { NEW, OLD, rowOf, TTL, within } from './rows.mjs';

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
        for (let batch = 0; batch < BATCHES; batch++) await raceOfKeys(caches, keysOf(batch), total, context.control);
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

async function raceOfKeys({ loader, other, invalidating }, keys, total, control) {
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

const PATIENCE = 10_000;
/** Until callers have joined, or those have stored who do so after they have answered, in ms. */
const SETTLING = 50;

let race;

/** Loads all of the keys; the loaders have read the old rows when this answers, and do not return yet. */
export async function beginRace(cache, { keys }) {
  let reading = 0;
  let open;
  let allRead;
  const gate = new Promise((resolve) => (open = resolve));
  const read = new Promise((resolve) => (allRead = resolve));
  const call = (key) => {
    const loader = async () => {
      const row = rowOf(key, OLD);
      reading += 1;
      if (reading === keys.length) allRead();
      await gate;
      return row;
    };
    return cache.getOrSet(key, loader, { ttl: TTL }).catch((error) => error);
  };
  race = { open, calls: keys.map(call), late: [] };
  await within(PATIENCE, read);
}

/** Further callers, after the invalidation and before the loaders have returned. */
export async function joinRace(cache, { keys }) {
  const call = (key) => cache.getOrSet(key, async () => rowOf(key, NEW), { ttl: TTL }).catch((error) => error);
  race.late = keys.map(call);
  await sleep(SETTLING);
}

/** Lets the loaders return. Answers how many of the further callers got an old row. */
export async function endRace() {
  race.open();
  const results = await within(PATIENCE, Promise.all(race.calls));
  const late = await within(PATIENCE, Promise.all(race.late));
  await sleep(SETTLING);
  return {
    errors: [...results, ...late].filter((result) => result instanceof Error).length,
    lateOld: late.filter((row) => row?.state === OLD).length,
  };
}
