import { setTimeout as sleep } from 'node:timers/promises';

/** Bytes that this process has in use once garbage is collected, which takes `--expose-gc`. */
export async function settledMemory() {
  for (let pass = 0; pass < 3; pass++) {
    globalThis.gc();
    await sleep(50);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap: heapUsed + external, rss };
}
