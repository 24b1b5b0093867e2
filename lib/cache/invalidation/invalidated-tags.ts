/** So many tags are told apart. */
const MOST = 1_000;

/**
 * Which tags were invalidated lately, as far as this process knows: a read that is under way is judged by what it turns
 * out to bear.
 */
export class ForgottenTags {
  /** The count when each was invalidated last. */
  private readonly last = new Map<string, number>();
  /** Of what was invalidated up to this count, it is not known any more which tags it was. */
  private unknown = 0;
  /** Grows whenever a tag was invalidated, or that may have been missed. */
  count = 0;

  add(tag: string): void {
    if (this.last.size >= MOST) this.forget();
    this.count += 1;
    this.last.set(tag, this.count);
  }

  /** Any tag may have been invalidated unheard. */
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
