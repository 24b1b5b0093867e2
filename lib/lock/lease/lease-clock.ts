/** One instant, read on the monotonic clock and on the wall clock, in ms. */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

export function currentInstant(): Instant {
  return { monotonic: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since then, by whichever clock moved further: the monotonic one stands still while the machine is
 * suspended, and the lease in the store does not.
 */
export function elapsedSince(instant: Instant): number {
  return Math.max(performance.now() - instant.monotonic, Date.now() - instant.wall);
}

/** How far two clocks may drift apart over `lease` ms: 1 % + 2 ms, as the Redlock specification of redis.io has it. */
export function driftOf(lease: number): number {
  return lease * 0.01 + 2;
}
