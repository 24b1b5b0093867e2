import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { microseconds, waitPercentiles, WaitRecorder } from '../figures.mjs';
import { withCaches } from './cache-process.mjs';
import { middle, sum, tableWith } from './columns.mjs';
import { NEW, rowOf, TTL, within } from './rows.mjs';

const TRIALS = 200;
const TRIALS_WITH_A_CUT = 60;
/** How long it is watched, in ms. */
const MOST = 1_000;
/** After this number of rows that stay old, the measurement ends: the next one would stay old, too. */
const ENOUGH = 10;

/**
 * For how long one process serves from its memory what another one has invalidated. `cut`: the connections that
 * messages come by are closed just before.
 */
export function coherence({ title, note, peers, cut = false }) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    ...(cut && { turns: () => 1 }),
    round: (peer, context) => withCaches(peer, context, (open) => watchMany(open, context.control, cut)),
    table: tableWith([
      sum('trials', 'trials'),
      middle('p50 ms', 'p50'),
      middle('p99 ms', 'p99'),
      middle('max ms', 'max'),
      sum('old after 1 s, writer had it', 'neverIfWarm'),
      sum('old after 1 s, writer had it not', 'neverIfCold'),
      sum('uncaught', 'uncaught'),
    ]),
  };
}

async function watchMany(open, control, cut) {
  const [reader, writer] = [await open(), await open()];
  const recorder = new WaitRecorder();
  const never = { warm: 0, cold: 0 };
  let trials = 0;
  for (let trial = 0; trial < (cut ? TRIALS_WITH_A_CUT : TRIALS); trial++) {
    // Does the writer have the value in its own memory?
    const kind = trial % 2 === 0 ? 'warm' : 'cold';
    if (never[kind] >= ENOUGH) continue;
    trials += 1;
    const window = await watchOne({ reader, writer, control, cut }, kind, `coherent:${trial}`);
    if (window === undefined) never[kind] += 1;
    else recorder.record(window);
  }
  const windows = waitPercentiles([recorder.encoded()]);
  const none = trials === never.warm + never.cold && { p50: NaN, p99: NaN, max: NaN };
  return { trials, neverIfWarm: never.warm, neverIfCold: never.cold, ...windows, ...none };
}

/**
 * How long (µs) after the end of the invalidation a read began that got the old row; `undefined` for longer than it was
 * watched.
 */
async function watchOne({ reader, writer, control, cut }, kind, key) {
  await reader.call('storeOld', { keys: [key] });
  if (kind === 'warm') await writer.call('storeOld', { keys: [key] });
  if (cut) await untilSubscribed(control);
  await reader.call('startWatching', { key, most: MOST });
  await sleep(5);
  if (cut) await control.cutSubscribers();
  const { ended } = await writer.call('invalidateOne', { key });
  const { lastOld, seen } = await reader.call('stopWatching');
  return seen ? Math.max(0, lastOld - ended) : undefined;
}

/** A peer without messages has none. */
async function untilSubscribed(control) {
  for (let look = 0; look < 100 && (await control.countSubscribers()) < 2; look++) await sleep(20);
}

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
