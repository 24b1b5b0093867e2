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
