/**
 * What a busy machine takes away does not count: of the time between two ticks of this process, only what a tick takes
 * where nothing else runs. An upper limit then says how long the code waits, and not how long the test was kept from
 * running. The import starts the clock.
 */

const TICK = 10;

const standstills: { readonly end: number; readonly lost: number }[] = [];
let lastTick = performance.now();

function look(): void {
  const now = performance.now();
  const lost = now - lastTick - TICK;
  if (lost > 0) standstills.push({ end: now, lost });
  lastTick = now;
}

let ticking: NodeJS.Timeout;
beforeAll(() => {
  lastTick = performance.now();
  ticking = setInterval(look, TICK).unref();
});
afterAll(() => clearInterval(ticking));

/** Milliseconds since `start`, an answer of `performance.now()`, without those in which this process stood still. */
export function quietTimeSince(start: number): number {
  look();
  const now = performance.now();
  return standstills.reduce((left, { end, lost }) => left - Math.max(0, Math.min(lost, end - start)), now - start);
}
