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

/** A holder that died keeps the name for its lease. */
const LEASE = SETTINGS.ttl.most;
/** A waiter that died or stands still may be given the name next, and keeps it for one more lease at most. */
const CLAIM = SETTINGS.ttl.most;
/** Reconnecting, one sleep between two tries, and a machine that has other things to do. */
const SLACK = 3_000;

export const BOUNDS = {
  /** Until somebody gets each name again, once the mischief is over: lease + claim + slack. */
  recovery: LEASE + CLAIM + SLACK,
  /** Until a caller has the lock or an error: its `wait`, the longest standstill of its process, and slack. */
  wait: SETTINGS.wait + STOP.most + SLACK,
  /** Until no lock and no queue is left at Redis, once nobody asks any more. */
  cleanup: 25_000,
  /** Until a child has started, or has ended by itself. */
  process: 20_000,
} as const;
