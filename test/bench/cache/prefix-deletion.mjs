import { setTimeout as sleep } from 'node:timers/promises';
import { microseconds, settledMemory, waitPercentiles, WaitRecorder } from '../figures.mjs';
import { withCaches } from './cache-process.mjs';
import { count, middle, tableWith } from './columns.mjs';
import { inParallel, NEW, rowOf, TTL } from './rows.mjs';

const READ_KEYS = 1_000;
const PREFIX = 'deleted:';
/** A million values are stored first. */
const PATIENCE = 300_000;

/** Deletes some of many keys by their prefix, and what another client, which reads, notices of it. */
export function prefixDeletion({ title, note, keys, deleted }) {
  return {
    title,
    note,
    rowsFor: (chosen) => chosen.filter((peer) => peer === 'ours-l2'),
    round: (peer, context) =>
      withCaches(peer, context, async (open) => {
        await context.control.populate('other:', keys - deleted);
        const [deleting, reader] = [await open(['--expose-gc']), await open()];
        // Not by the process whose memory is measured.
        await reader.call('setMany', { prefix: PREFIX, count: deleted }, PATIENCE);
        await reader.call('fill', { keys: READ_KEYS, prefix: 'read' });
        const without = await readDuring(reader, () => sleep(context.ms));
        let deletion;
        const during = await readDuring(reader, async () => {
          deletion = await deleting.call('deleteByPrefix', { prefix: PREFIX }, PATIENCE);
        });
        if (deletion.deleted !== deleted) throw new Error(`${deletion.deleted} of ${deleted} keys were deleted`);
        return {
          ...deletion,
          p99Without: without.p99,
          p99During: during.p99,
          maxWithout: without.max,
          maxDuring: during.max,
        };
      }),
    table: tableWith([
      count('keys deleted', 'deleted'),
      middle('seconds', 'seconds'),
      middle('reader p99 ms, without', 'p99Without'),
      middle('reader p99 ms, during', 'p99During'),
      middle('reader max ms, without', 'maxWithout'),
      middle('reader max ms, during', 'maxDuring'),
      middle('RSS growth MiB', 'grown'),
    ]),
  };
}

async function readDuring(reader, work) {
  await reader.call('startReading', { keys: READ_KEYS, prefix: 'read' });
  await work();
  return waitPercentiles([await reader.call('stopReading')]);
}

/** How often the memory is looked at, in ms. */
const SAMPLE = 10;

/** Stores values under the prefix and numbers, without asking whether they are there. */
export async function setMany(cache, { prefix, count: total }) {
  await inParallel(1_000, total, (number) => cache.set(`${prefix}${number}`, number, { ttl: TTL }));
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
