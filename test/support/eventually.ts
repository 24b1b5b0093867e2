import { setTimeout as sleep } from 'node:timers/promises';

/** Repeats `probe` until it answers something true, and answers that. Fails after `within` ms. */
export async function eventually<T>(
  probe: () => T | Promise<T>,
  { within = 30_000, every = 10 }: { within?: number; every?: number } = {},
): Promise<NonNullable<T>> {
  const until = performance.now() + within;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (performance.now() > until) throw new Error(`Not within ${within} ms: ${String(probe)}`);
    await sleep(every);
  }
}
