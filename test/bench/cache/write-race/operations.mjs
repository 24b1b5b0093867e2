import { setTimeout as sleep } from 'node:timers/promises';
import { NEW, OLD, rowOf, TTL } from '../rows.mjs';
import { within } from '../within.mjs';

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
