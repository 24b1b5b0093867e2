import { microseconds } from '../../clock.mjs';
import { settledMemory } from '../../memory/settled-memory.mjs';
import { WaitRecorder } from '../../waits.mjs';
import { inParallel } from '../in-parallel.mjs';
import { NEW, rowOf, TTL } from '../rows.mjs';

/** How often the memory is looked at, in ms. */
const SAMPLE = 10;

/** Stores values under the prefix and numbers, without asking whether they are there. */
export async function setMany(cache, { prefix, count }) {
  await inParallel(1_000, count, (number) => cache.set(`${prefix}${number}`, number, { ttl: TTL }));
}

/** Deletes all that begins with the prefix, and measures by how much the memory of this process grows meanwhile. */
export async function deleteByPrefix(cache, { prefix }) {
  const before = (await settledMemory()).rss;
  let most = before;
  const sample = () => (most = Math.max(most, process.memoryUsage.rss()));
  const timer = setInterval(sample, SAMPLE);
  const begin = performance.now();
  const deleted = await cache.deleteByPrefix(prefix);
  const seconds = (performance.now() - begin) / 1_000;
  clearInterval(timer);
  sample();
  return { deleted, seconds, grown: (most - before) / 2 ** 20 };
}

let reading;

/** Reads stored keys, one after the other, until it is stopped. */
export function startReading(cache, { keys, prefix }) {
  const recorder = new WaitRecorder();
  const state = { stopped: false };
  const read = async () => {
    for (let number = 0; !state.stopped; number++) {
      const begin = microseconds();
      await cache.getOrSet(`${prefix}:${number % keys}`, async () => rowOf(number, NEW), { ttl: TTL });
      recorder.record(microseconds() - begin);
    }
    return recorder.encoded();
  };
  reading = { state, waits: read() };
  // stopReading reports the error.
  reading.waits.catch(() => {});
}

export function stopReading() {
  reading.state.stopped = true;
  return reading.waits;
}
