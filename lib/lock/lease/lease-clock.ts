/** One instant, read on the monotonic clock and on the wall clock, in ms. */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

export function currentInstant(): Instant {
  return { monotonic: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since `instant`, by the clock that moved further: the monotonic one stops while the machine is suspended,
 * and the lease at the backend goes on.
 */
export function elapsedSince(instant: Instant): number {
  return Math.max(performance.now() - instant.monotonic, Date.now() - instant.wall);
}

/** How far two clocks may drift apart over `lease` ms: 1 % + 2 ms, as the Redlock specification of redis.io has it. */
export function driftOf(lease: number): number {
  return lease * 0.01 + 2;
}

/** The `ttl` (ms) to request: at the backend, the lease must outlast `minHold` without a renewal. */
export function requestedTtl({ ttl, minHold }: { readonly ttl: number; readonly minHold: number }): number {
  return minHold === 0 ? ttl : Math.max(ttl, Math.ceil(minHold + driftOf(minHold)));
}
