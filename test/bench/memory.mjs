import { setTimeout as sleep } from 'node:timers/promises';
import { median, settledMemory } from './figures.mjs';
import { rounded } from './report.mjs';
import { connectLocks } from './worker/lock-service.mjs';
import { runTogether } from './worker/worker-process.mjs';

const PATIENCE = 60_000;

/** What one instance of ours needs for each of many locks that it holds, and for each of many that it waits for. */
export function memory({ title, note, locks }) {
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? ['held lock', 'waiting lock'] : []),
    async round(what, { port }) {
      const settings = [{ what, port, locks }];
      const [figures] = await runTogether({ job: 'memory', settings, execArgv: ['--expose-gc'], patience: PATIENCE });
      return figures;
    },
    table: (rows) => ({
      columns: ['one', 'heap bytes', 'RSS bytes'],
      rows: rows.map(({ name, rounds }) => [name, ...(rounds.length > 0 ? cells(rounds) : [])]),
      notes: [],
    }),
  };
}

function cells(rounds) {
  return ['heap', 'rss'].map((figure) => rounded(Math.round(median(rounds.map((round) => round[figure])))));
}

const LEASE = 60_000;
const WARM_UP_CYCLES = 2_000;
/** Taken side by side, so that no request waits long for its answer. */
const BATCH = 500;

const JOBS = { 'held lock': hold, 'waiting lock': wait };

/**
 * Answers what takes the locks, or waits for one, and measures what this process grew by. It keeps them till its end.
 */
export async function prepare({ what, port, locks: count }) {
  const locks = await connectLocks(port);
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await locks.withLock(`warm-up:${cycle % 10}`, async () => {});
  const other = await connectLocks(port);
  await other.acquire('hot', { ttl: LEASE });
  return async () => {
    const before = await settledMemory();
    // Kept alive here while the memory is read.
    const kept = await JOBS[what](locks, count);
    const after = await settledMemory();
    return { heap: (after.heap - before.heap) / kept.length, rss: (after.rss - before.rss) / kept.length };
  };
}

async function hold(locks, count) {
  const held = [];
  while (held.length < count) {
    const first = held.length;
    const batch = Array.from({ length: Math.min(BATCH, count - first) }, (_, index) => `held:${first + index}`);
    held.push(...(await Promise.all(batch.map((name) => locks.acquire(name, { ttl: LEASE })))));
  }
  return held;
}

async function wait(locks, count) {
  const waiters = Array.from({ length: count }, () => locks.acquire('hot', { ttl: LEASE, wait: Infinity }));
  for (const waiter of waiters) waiter.catch(() => {});
  while (!(await allWait(locks, count))) await sleep(100);
  return waiters;
}

async function allWait(locks, count) {
  try {
    return (await locks.inspect('hot')).waiting >= count;
  } catch {
    return false; // the server is busy with the waiters
  }
}
