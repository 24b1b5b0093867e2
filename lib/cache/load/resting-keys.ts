/**
 * The keys of which a load failed a moment ago, and which are not loaded for a while where something else can be
 * answered.
 */
export class Rests {
  private readonly keys = new Map<string, NodeJS.Timeout>();

  /** For `rest` ms from now. */
  begin(key: string, rest: number): void {
    this.end(key);
    if (rest > 0) this.keys.set(key, setTimeout(() => this.keys.delete(key), rest).unref());
  }

  end(key: string): void {
    clearTimeout(this.keys.get(key));
    this.keys.delete(key);
  }

  has(key: string): boolean {
    return this.keys.has(key);
  }
}
