/** One instant, read on the monotonic clock and on the wall clock, in ms. */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

export function currentInstant(): Instant {
  return { monotonic: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since `instant`, by the clock that moved further: the monotonic clock stops while the machine is
 * suspended, but the lease at the backend goes on.
 */
export function elapsedSince(instant: Instant): number {
  return Math.max(performance.now() - instant.monotonic, Date.now() - instant.wall);
}

/** Milliseconds from one instant to another, by the clock that moved further. */
export function elapsedBetween(from: Instant, to: Instant): number {
  return Math.max(to.monotonic - from.monotonic, to.wall - from.wall);
}

/** How far two clocks may drift apart over `lease` ms: 1 % + 2 ms, as in the Redlock specification of redis.io. */
export function driftOf(lease: number): number {
  return lease * 0.01 + 2;
}

/** A timer that fires more than this (ms) late shows that the event loop stood still. */
const LATE = 10;

/**
 * Runs `late` after the sockets have been read once. When the event loop stood still, it runs timers before it reads
 * sockets: the answer that a time-out would give up may have arrived. Called from an answer that was read, the first
 * `setImmediate` comes before the loop reads again; a read lies between the two, whatever the loop does now.
 */
export function onceRead(late: () => void): void {
  setImmediate(() => setImmediate(late));
}

/** Runs at once, unless the timer that was due at `at` (ms of the monotonic clock) fires late. */
export function onceReadIfLate(at: number | undefined, run: () => void): void {
  if (at === undefined || performance.now() - at < LATE) run();
  else onceRead(run);
}

/** The longest delay in ms that a timer of Node.js takes, about 24.8 days; a longer one would fire at once. */
export const LONGEST_DELAY = 2 ** 31 - 1;

/**
 * Milliseconds to pause before the next retry, after `failures` earlier retries have failed: doubles from `first` up to
 * `longest`.
 */
export function backoff(failures: number, first = 25, longest = 1_000): number {
  return Math.min(first * 2 ** failures, longest);
}
