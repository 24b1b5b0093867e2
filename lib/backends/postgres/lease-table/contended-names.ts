/** How many names it keeps at most. */
const MOST = 10_000;

/**
 * The names for which other processes waited when this one last saw them: for these the plain statement would find
 * nothing to do, and cost a round trip.
 */
export class ContendedNames {
  private readonly names = new Set<string>();

  has(name: string): boolean {
    return this.names.size > 0 && this.names.has(name);
  }

  set(name: string, contended: boolean): void {
    if (!contended) this.names.delete(name);
    else {
      if (this.names.size >= MOST) this.names.clear();
      this.names.add(name);
    }
  }
}
