/** The keys that rest after a failed load: while a key rests, its stale value is served without another load. */
export class RestingKeys {
  private readonly timers = new Map<string, NodeJS.Timeout>();

  /** Lets the key rest for `rest` ms from now. */
  begin(key: string, rest: number): void {
    this.end(key);
    if (rest > 0) this.timers.set(key, setTimeout(() => this.timers.delete(key), rest).unref());
  }

  end(key: string): void {
    clearTimeout(this.timers.get(key));
    this.timers.delete(key);
  }

  has(key: string): boolean {
    return this.timers.has(key);
  }
}
