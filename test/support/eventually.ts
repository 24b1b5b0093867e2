import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Repeats `probe` until it answers something true, and answers that. Fails after `within` ms, in which a standstill of
 * this process counts for a tenth at most.
 */
export async function eventually<T>(
  probe: () => T | Promise<T>,
  { within = 30_000, every = 10 }: { within?: number; every?: number } = {},
): Promise<NonNullable<T>> {
  let [left, last] = [within, performance.now()];
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (left <= 0) throw new Error(`Not within ${within} ms: ${String(probe)}`);
    await sleep(every);
    const now = performance.now();
    left -= Math.min(now - last, Math.max(every, within / 10));
    last = now;
  }
}
