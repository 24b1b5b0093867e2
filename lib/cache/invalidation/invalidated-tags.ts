/** How many tags are remembered by name. */
const MOST = 1_000;

/**
 * Remembers which tags were invalidated lately, as far as this process knows. The tags of a value are known only when
 * its read ends, which then asks whether one of them was invalidated since the read began.
 */
export class InvalidatedTags {
  /** The count at the last invalidation of each tag. */
  private readonly last = new Map<string, number>();
  /** Which tags were invalidated up to this count is not known any more. */
  private unknown = 0;
  /** Rises with each invalidation of a tag, and whenever one may have been missed. */
  count = 0;

  add(tag: string): void {
    if (this.last.size >= MOST) this.forget();
    this.count += 1;
    this.last.set(tag, this.count);
  }

  /** Counts every tag as invalidated: messages may have been missed. */
  addUnknown(): void {
    this.count += 1;
    this.forget();
  }

  /** Whether one of the tags may have been invalidated since the count was `since`. */
  anySince(tags: readonly string[], since: number): boolean {
    if (tags.length === 0 || since === this.count) return false;
    return since < this.unknown || tags.some((tag) => (this.last.get(tag) ?? 0) > since);
  }

  private forget(): void {
    this.last.clear();
    this.unknown = this.count;
  }
}
