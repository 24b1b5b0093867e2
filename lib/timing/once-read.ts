/** A timer that fires more than this (ms) late shows that the event loop stood still. */
const LATE = 10;

/**
 * Runs `late` after the sockets have been read once. When the event loop stood still, it runs timers before it reads
 * sockets: the answer that a time-out would give up may have arrived.
 */
export function onceRead(late: () => void): void {
  setImmediate(late);
}

/** Runs at once, unless the timer that was due at `at` (ms of the monotonic clock) fires late. */
export function onceReadIfLate(at: number | undefined, run: () => void): void {
  if (at === undefined || performance.now() - at < LATE) run();
  else onceRead(run);
}
