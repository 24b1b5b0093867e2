import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';

/** What the contenders do, and the bounds that follow from it. Times are in ms. */
export const SETTINGS = {
  children: 4,
  callers: 8,
  /** Few, so that there is always somebody who waits. */
  names: ['hot', 'warm', 'mild'],
  ttl: { least: 500, most: 1_000 },
  wait: 20_000,
} as const;

/** How long a stopped child stands still. */
export const STOP = { least: 50, most: 2_000 } as const;

/** How long a server stands still: longer than requests wait for an answer of a node, shorter than leases. */
export const STANDSTILL = 700;

/** Reconnecting, one sleep between two tries, and a machine that has other things to do. */
const SLACK = 3_000;

export const BOUNDS = {
  /** Until a caller has the lock or an error: its `wait`, the longest standstill of its process, and slack. */
  wait: SETTINGS.wait + STOP.most + SLACK,
  /** Until no lock and no queue is left at the store, once nobody asks any more. */
  cleanup: 25_000,
  /** Until a child has started, or has ended by itself. */
  process: 60_000,
} as const;

/**
 * Until somebody gets each name again (ms), once the mischief is over: a holder that died keeps the name for its lease,
 * and a waiter that died or stands still may be given it next, and keeps it for one more lease at most.
 */
export function recoveryBound(lease: number): number {
  return 2 * lease + SLACK;
}

/** Random numbers that are the same for the same seed. */
export class Random {
  private readonly generator;

  constructor(seed: number) {
    this.generator = xoroshiro128plus(seed);
  }

  /** A whole number; both bounds can come. */
  whole(least: number, most: number): number {
    return uniformInt(this.generator, least, most);
  }

  shuffled<T>(values: readonly T[]): T[] {
    const result = [...values];
    for (let last = result.length - 1; last > 0; last--) {
      const other = this.whole(0, last);
      [result[last], result[other]] = [result[other] as T, result[last] as T];
    }
    return result;
  }
}
