/**
 * Proposes fencing tokens: the time of the nodes in µs, as far as this process knows it, so that tokens rise even when
 * the counters at the nodes have expired. The nodes decide whether a proposed token is above all earlier ones.
 */
export class TokenClock {
  /** What the monotonic clock (µs) lacks to the clock of the nodes. */
  private offset = performance.timeOrigin * 1_000;

  propose(least = 0): number {
    return Math.max(Math.floor(performance.now() * 1_000 + this.offset), least);
  }

  /** `micros`: the earliest of the times that a majority of nodes stated, so that one wrong clock does not count. */
  heard(micros: number, refused: boolean): void {
    if (micros === Infinity) return;
    const offset = micros - performance.now() * 1_000;
    if (refused || offset > this.offset) this.offset = offset;
  }
}
