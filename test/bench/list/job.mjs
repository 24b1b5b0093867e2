import { setTimeout as sleep } from 'node:timers/promises';
import { microseconds, WaitRecorder } from '../figures.mjs';
import { connectLocks } from '../worker/lock-service.mjs';

const WARM_UP_CYCLES = 500;
/** Taken side by side, so that no request waits long for its answer. */
const BATCH = 500;
/** Longer than the benchmark. */
const LEASE = '1h';

const ROLES = { holder, clients, lister };

export async function prepare({ role, port, ...settings }) {
  return ROLES[role](await connectLocks(port), settings);
}

/** Takes the locks, and keeps them until its process ends. */
async function holder(locks, { count }) {
  const held = [];
  for (let first = 0; first < count; first += BATCH) {
    const names = Array.from({ length: Math.min(BATCH, count - first) }, (_, index) => `held:${first + index}`);
    held.push(...(await Promise.all(names.map((name) => locks.acquire(name, { ttl: LEASE, renew: false })))));
  }
  return async () => held.filter((lock) => lock.held).length;
}

/** Callers who take a free lock and give it back, again after `pause` ms; answers how long each cycle took. */
async function clients(locks, { callers, pause }) {
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await locks.withLock('warm-up', async () => {});
  return async ({ ms }) => {
    const waits = new WaitRecorder();
    const end = microseconds() + ms * 1_000;
    let cycles = 0;
    const call = async (_, caller) => {
      while (microseconds() < end) {
        const asked = microseconds();
        await locks.withLock(`order:${caller}`, async () => {});
        waits.record(microseconds() - asked);
        cycles += 1;
        await sleep(pause);
      }
    };
    await Promise.all(Array.from({ length: callers }, call));
    return { cycles, waits: waits.encoded() };
  };
}

/** Pages through all locks, again from the beginning after the last page, for `ms` or until the `end` of one list. */
async function lister(locks, { limit }) {
  let cursor;
  return async ({ ms = Infinity, end = false }) => {
    if (end) cursor = undefined;
    const began = microseconds();
    const names = new Set();
    let pages = 0;
    do {
      const page = await locks.list('*', { cursor, limit });
      for (const { key } of page.locks) names.add(key);
      ({ cursor } = page);
      pages += 1;
    } while (end ? cursor !== undefined : microseconds() - began < ms * 1_000);
    return { pages, found: names.size, elapsed: (microseconds() - began) / 1_000 };
  };
}
