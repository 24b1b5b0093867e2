interface Entry<V> {
  readonly value: V;
  readonly endsAt: number;
}

const FIRST_SWEEP = 1_024;

/** A map whose entries expire by the monotonic clock. Times are in ms. */
export class ExpiringMap<V> {
  private readonly entries = new Map<string, Entry<V>>();
  private sweepAt = FIRST_SWEEP;

  get(key: string): V | undefined {
    return this.live(key)?.value;
  }

  /** How long the entry still lives; `undefined` when there is none. */
  remaining(key: string): number | undefined {
    const entry = this.live(key);
    return entry && entry.endsAt - performance.now();
  }

  set(key: string, value: V, ttl: number): void {
    this.sweepWhenGrown();
    this.entries.set(key, { value, endsAt: performance.now() + ttl });
  }

  /** Makes the entry expire `ttl` from now; `false` when there is none. */
  expire(key: string, ttl: number): boolean {
    const entry = this.live(key);
    if (entry) this.set(key, entry.value, ttl);
    return entry !== undefined;
  }

  /** Keeps the entry for at least `ttl` from now; `false` when there is none. */
  prolong(key: string, ttl: number): boolean {
    return this.expire(key, Math.max(ttl, this.remaining(key) ?? 0));
  }

  /** Keeps the entry for at most `ttl` from now. */
  shorten(key: string, ttl: number): void {
    this.expire(key, Math.min(ttl, this.remaining(key) ?? 0));
  }

  delete(key: string): void {
    this.entries.delete(key);
  }

  /** In order of insertion. Entries added or deleted during the iteration may appear or not. */
  *keys(): Generator<string, void, undefined> {
    for (const key of this.entries.keys()) if (this.live(key)) yield key;
  }

  get size(): number {
    this.sweep();
    return this.entries.size;
  }

  private live(key: string): Entry<V> | undefined {
    const entry = this.entries.get(key);
    if (!entry || entry.endsAt > performance.now()) return entry;
    this.entries.delete(key);
    return undefined;
  }

  private sweep(): void {
    for (const key of this.entries.keys()) this.live(key);
  }

  /** Drops expired entries that nobody reads any more, each time the map has doubled: O(1) amortized. */
  private sweepWhenGrown(): void {
    if (this.entries.size < this.sweepAt) return;
    this.sweep();
    this.sweepAt = Math.max(FIRST_SWEEP, this.entries.size * 2);
  }
}
