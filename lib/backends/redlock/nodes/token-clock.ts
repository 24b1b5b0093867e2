/**
 * Proposes fencing tokens: the time of the nodes in µs, as far as this process knows it, so that tokens rise even when
 * the counters at the nodes have expired, and waiters of all processes come in order. The nodes decide whether a
 * proposed token is above all earlier ones.
 */
export class TokenClock {
  /** What the monotonic clock (µs) lacks to the clock of the nodes. */
  private offset = performance.timeOrigin * 1_000;

  propose(least = 0): number {
    return Math.max(Math.floor(performance.now() * 1_000 + this.offset), least);
  }

  /** It was `micros` at the nodes at some time between the request, sent at `sentAt` (ms), and now. */
  heard(micros: number, sentAt: number): void {
    this.offset = Math.min(Math.max(this.offset, micros - performance.now() * 1_000), micros - sentAt * 1_000);
  }
}
