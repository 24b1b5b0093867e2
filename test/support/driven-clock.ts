import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import { jest } from '@jest/globals';

/**
 * Time that passes only when the test says so. `performance.now`, `Date` and the timers of the code under test follow
 * it, so a lease of 200 ms also outlives a machine that stands still for a second.
 */
export class DrivenClock {
  start(): void {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] });
  }

  stop(): void {
    jest.useRealTimers();
  }

  /** Lets `ms` pass. Resolves when the timers that fell due had their effects. */
  async pass(ms: number): Promise<void> {
    await jest.advanceTimersByTimeAsync(ms);
    await turnOfTheLoop();
  }

  /** `eventually` on this clock: lets time pass until `probe` answers something true, for at most `within` ms. */
  readonly eventually = async <T>(
    probe: () => T | Promise<T>,
    { within = 30_000, every = 10 }: { within?: number; every?: number } = {},
  ): Promise<NonNullable<T>> => {
    const until = performance.now() + within;
    for (;;) {
      const value = await probe();
      if (value) return value;
      if (performance.now() > until) throw new Error(`Not within ${within} ms: ${String(probe)}`);
      await this.pass(every);
    }
  };

  /** Lets time pass until the promise settles. */
  async settle<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const outcome = promise.finally(() => (settled = true));
    outcome.catch(() => {});
    await this.eventually(() => settled, { within: 60_000 });
    return outcome;
  }
}
