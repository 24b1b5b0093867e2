import { setTimeout as sleep } from 'node:timers/promises';
import { SemaphoreService } from 'nest-redis-lock';
import { microseconds, WaitRecorder } from '../figures.mjs';
import { connectIoredis, LEASE, peerModules, WAIT } from '../peers/connecting.mjs';
import { connectApplication } from '../worker/lock-service.mjs';

/** Each answers `run(key, permits, body)`. */
const CONNECT = {
  ours: async ({ port }) => {
    const semaphores = (await connectApplication(port)).get(SemaphoreService);
    return (key, permits, body) => semaphores.withPermit(key, { permits, ttl: LEASE, wait: WAIT }, body);
  },
  'redis-semaphore': async ({ port, directory }) => {
    const modules = peerModules(directory);
    const { Semaphore } = modules.require('redis-semaphore');
    const client = await connectIoredis({ port, modules });
    return async (key, permits, body) => {
      const semaphore = new Semaphore(client, key, permits, { lockTimeout: LEASE, acquireTimeout: WAIT });
      await semaphore.acquire();
      try {
        return await body();
      } finally {
        await semaphore.release();
      }
    };
  },
};

/** Connects and warms up, on a key of its own; answers what runs the callers of this process. */
export async function prepare({ peer, port, directory, callers, permits, hold, ms }) {
  const run = await CONNECT[peer]({ port, directory });
  for (let cycle = 0; cycle < 100; cycle++) await run('warm-up', 1_000, async () => {});
  return async () => {
    const waits = new WaitRecorder();
    const served = Array.from({ length: callers }, () => 0);
    const [entered, left] = [[], []];
    let errors = 0;
    const began = microseconds();
    const end = began + ms * 1_000;
    const call = async (_, caller) => {
      while (microseconds() < end) {
        const asked = microseconds();
        try {
          await run('hot', permits, async () => {
            const at = microseconds();
            entered.push(at);
            waits.record(at - asked);
            await sleep(hold);
            left.push(microseconds());
          });
          served[caller] += 1;
        } catch {
          errors += 1;
        }
      }
    };
    await Promise.all(served.map(call));
    const elapsed = (microseconds() - began) / 1_000;
    return { elapsed, served, errors, waits: waits.encoded(), entered, left };
  };
}
