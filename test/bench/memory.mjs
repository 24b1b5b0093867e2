import { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { median, settledMemory } from './figures.mjs';
import { rounded } from './report.mjs';
import { connectLocks } from './worker/lock-service.mjs';
import { runTogether } from './worker/worker-process.mjs';

const PATIENCE = 60_000;

/** What one instance of ours needs for each lock that it holds, and for each caller that waits. */
export function memory({ title, note, locks }) {
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? Object.keys(ROWS) : []),
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

/** What each row takes or waits for, how many times as many of them, and what a foreign client holds meanwhile. */
const ROWS = {
  'held lock': { run: hold, names: namesOf, times: 1, busy: () => [] },
  'waiting lock': { run: wait, names: (count) => Array(count).fill('hot'), times: 1, busy: () => ['hot'] },
  'waiting lock, each its own': { run: wait, names: namesOf, times: 10, busy: namesOf },
};

/**
 * Answers what takes the locks, or waits for them, and measures what this process grew by. It keeps them till its end.
 */
export async function prepare({ what, port, locks: number }) {
  const locks = await connectLocks(port);
  const { run, names, times, busy } = ROWS[what];
  const count = times * number;
  await holdElsewhere(port, busy(count));
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await locks.withLock(`warm-up:${cycle % 10}`, async () => {});
  return async () => {
    const before = await settledMemory();
    // Kept alive here while the memory is read.
    const kept = await run(locks, names(count));
    const after = await settledMemory();
    return { heap: (after.heap - before.heap) / kept.length, rss: (after.rss - before.rss) / kept.length };
  };
}

async function holdElsewhere(port, names) {
  const redis = new Redis(port);
  const owner = randomUUID();
  for (const batch of batchesOf(names)) {
    await Promise.all(batch.map((name) => redis.set(`lock:{${name}}`, `${owner}:${name}`, 'PX', 10 * LEASE)));
  }
  await redis.quit();
}

async function hold(locks, names) {
  const held = [];
  for (const batch of batchesOf(names)) {
    held.push(...(await Promise.all(batch.map((name) => locks.acquire(name, { ttl: LEASE })))));
  }
  return held;
}

/** Callers of this process wait for a number of names, each for its own, which a foreign client holds. */
export async function queueAtHeldNames(locks, port, count) {
  const names = namesOf(count);
  await holdElsewhere(port, names);
  return wait(locks, names);
}

/** Answers the promises alone: what a caller hangs on one is not memory of ours. The last of a batch queues last. */
async function wait(locks, names) {
  const waiters = [];
  for (const batch of batchesOf(names)) {
    waiters.push(...batch.map((name) => locks.acquire(name, { ttl: LEASE, wait: Infinity })));
    while (!(await queued(locks, batch.at(-1)))) await sleep(5);
  }
  return waiters;
}

function batchesOf(names) {
  return Array.from({ length: Math.ceil(names.length / BATCH) }, (_, index) =>
    names.slice(index * BATCH, (index + 1) * BATCH),
  );
}

async function queued(locks, name) {
  try {
    return (await locks.inspect(name)).waiters.length > 0;
  } catch {
    return false; // the server is busy with the waiters
  }
}

function namesOf(count) {
  return Array.from({ length: count }, (_, index) => `name:${index}`);
}
