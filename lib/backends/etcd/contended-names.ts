/** How many names it remembers. */
const MOST = 1_000;

/**
 * The names that others wanted when this process asked last. For those, a request reads at once who owns them and who
 * waits; for all others it does without, because that costs etcd as much as half of the request.
 */
export class ContendedNames {
  private readonly locks = new Set<string>();

  has(lock: string): boolean {
    return this.locks.has(lock);
  }

  add(lock: string): void {
    if (this.locks.size >= MOST) this.locks.clear();
    this.locks.add(lock);
  }

  delete(lock: string): void {
    this.locks.delete(lock);
  }
}
