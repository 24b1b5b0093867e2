/** A timer that fires so much later (ms) tells of an event loop that stood still. */
const LATE = 10;

/**
 * Runs `late` when what has arrived by now was read. After the event loop stood still, timers come before sockets: the
 * answer that a timer gives up may be there.
 */
export function onceRead(late: () => void): void {
  setImmediate(late);
}

/** At once in the timer that was due at `at` (monotonic, ms), unless that fires late. */
export function onceReadIfLate(at: number | undefined, run: () => void): void {
  if (at === undefined || performance.now() - at < LATE) run();
  else onceRead(run);
}
