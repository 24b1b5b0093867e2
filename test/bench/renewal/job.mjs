import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectLocks } from '../worker/lock-service.mjs';

/** Taken side by side, so that no request waits long for its answer. */
const BATCH = 500;
const WARM_UP_CYCLES = 2_000;

/** Takes the locks; answers what watches the event loop while the watchdog keeps them. */
export async function prepare({ port, locks: count, ttl, ms }) {
  const locks = await connectLocks(port);
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await locks.withLock(`warm-up:${cycle % 10}`, async () => {});
  const held = [];
  for (let first = 0; first < count; first += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - first) }, (_, index) => `held:${first + index}`);
    held.push(...(await Promise.all(batch.map((name) => locks.acquire(name, { ttl })))));
  }
  return async () => {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    await sleep(ms);
    delay.disable();
    const milliseconds = (nanoseconds) => nanoseconds / 1e6;
    return {
      p50: milliseconds(delay.percentile(50)),
      p99: milliseconds(delay.percentile(99)),
      max: milliseconds(delay.max),
      lost: held.filter((lock) => !lock.held).length,
    };
  };
}
