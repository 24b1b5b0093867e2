import { NameReaders } from './name-readers.js';

/** Names that nobody reads any more are dropped once there are more than this, and each time their number doubles. */
const FIRST_SWEEP = 64;

/** The readers of the names that somebody reads, or has waited to read. */
export class ReadersByKey {
  private readonly byKey = new Map<string, NameReaders>();
  private sweepAt = FIRST_SWEEP;

  get(key: string): NameReaders | undefined {
    return this.byKey.get(key);
  }

  /** Those of the key, of which there may be none yet. */
  of(key: string): NameReaders {
    const present = this.byKey.get(key);
    if (present) return present;
    if (this.byKey.size >= this.sweepAt) this.sweep();
    const readers = new NameReaders();
    this.byKey.set(key, readers);
    return readers;
  }

  /** Whether the ticket reads. */
  reads(key: string, ticket: string): boolean {
    return this.byKey.get(key)?.remaining(ticket) !== undefined;
  }

  /** The keys that somebody reads. */
  keys(): readonly string[] {
    return [...this.byKey].filter(([, readers]) => readers.reading).map(([key]) => key);
  }

  forgetIfIdle(key: string): void {
    if (this.byKey.get(key)?.idle) this.byKey.delete(key);
  }

  private sweep(): void {
    for (const key of this.byKey.keys()) this.forgetIfIdle(key);
    this.sweepAt = Math.max(FIRST_SWEEP, 2 * this.byKey.size);
  }
}
