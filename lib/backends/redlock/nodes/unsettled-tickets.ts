/** The keys of one ticket, as RELEASE takes them: lock and wanted of each name. */
export type ReleaseKeys = readonly string[];

const MOST = 10_000;

/**
 * The tickets that a node may hold although their locks were given up or released: the node is to free them. The oldest
 * leave when there are too many; their leases end them.
 */
export class UnsettledTickets {
  private readonly keysOf = new Map<string, ReleaseKeys>();

  has(ticket: string): boolean {
    return this.keysOf.has(ticket);
  }

  /** A request for this ticket may come again: remembers it in any case. */
  add(ticket: string, keys: ReleaseKeys): void {
    this.keysOf.set(ticket, keys);
    if (this.keysOf.size <= MOST) return;
    for (const [oldest] of this.keysOf) {
      this.keysOf.delete(oldest);
      break;
    }
  }

  /** No request for this ticket comes again: remembers it while there is room. */
  addIfRoom(ticket: string, keys: ReleaseKeys): void {
    if (this.keysOf.size < MOST) this.keysOf.set(ticket, keys);
  }

  delete(ticket: string): void {
    this.keysOf.delete(ticket);
  }

  entries(): readonly (readonly [ticket: string, keys: ReleaseKeys])[] {
    return [...this.keysOf];
  }
}
