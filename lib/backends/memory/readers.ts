import { ExpiringMap } from './expiring-map.js';

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

/** Names that nobody reads any more are dropped once there are more than this, and each time their number doubles. */
const FIRST_SWEEP = 64;

/**
 * The readers of one name, and who waits for the name as long as there are any. Readers that wait come before the
 * writers that are not next, so that writers and all the readers that wait take turns.
 */
class NameReaders {
  private readonly leases = new ExpiringMap<true>();
  private waiting: Waiter[] = [];
  /** The fencing token of a reader that joins now. */
  token = 0;

  /** The tickets that read. */
  get tickets(): string[] {
    return [...this.leases.keys()];
  }

  get reading(): boolean {
    return this.leases.size > 0;
  }

  /** Whether nobody reads or waits. */
  get idle(): boolean {
    return !this.reading && this.live().length === 0;
  }

  /** Milliseconds left of the lease of a ticket that reads. */
  remaining(ticket: string): number | undefined {
    return this.leases.remaining(ticket);
  }

  /** Milliseconds left of the longest lease. */
  longest(): number {
    return Math.max(0, ...this.tickets.map((ticket) => this.remaining(ticket) ?? 0));
  }

  add(ticket: string, ttl: number): void {
    this.leave(ticket);
    this.leases.set(ticket, true, ttl);
  }

  prolong(ticket: string, ttl: number): boolean {
    return this.leases.prolong(ticket, ttl);
  }

  /** Ends the lease of the ticket; `false` when it has none. */
  remove(ticket: string): boolean {
    const read = this.remaining(ticket) !== undefined;
    this.leases.delete(ticket);
    return read;
  }

  /** The ticket waits no more. */
  leave(ticket: string): void {
    this.waiting = this.waiting.filter((waiter) => waiter.ticket !== ticket);
  }

  /** Notes that the ticket waits, to read or to write, and was heard of now. */
  wait(ticket: string, reads: boolean): void {
    const waiting = this.live();
    const present = waiting.find((waiter) => waiter.ticket === ticket);
    if (present) present.seenAt = performance.now();
    else waiting.splice(this.placeOf(reads, waiting), 0, { ticket, reads, seenAt: performance.now() });
  }

  /** Whether the ticket must let another one that waits go first. */
  comesLater(ticket: string, reads: boolean): boolean {
    const waiting = this.live();
    const place = waiting.findIndex((waiter) => waiter.ticket === ticket);
    const before = place === -1 ? waiting : waiting.slice(0, place);
    return reads ? before.some((waiter) => !waiter.reads) : before.length > 0;
  }

  private placeOf(reads: boolean, waiting: readonly Waiter[]): number {
    if (!reads) return waiting.length;
    const first = waiting.findIndex((waiter) => !waiter.reads);
    const pivot = this.reading ? waiting.findIndex((waiter, place) => place > first && !waiter.reads) : first;
    return pivot === -1 ? waiting.length : pivot;
  }

  private live(): Waiter[] {
    const oldest = performance.now() - SILENCE;
    return (this.waiting = this.waiting.filter(({ seenAt }) => seenAt >= oldest));
  }
}

/** A ticket that has not asked for this time (ms) no longer waits: many times the pace at which tickets ask. */
const SILENCE = 1_500;

interface Waiter {
  readonly ticket: string;
  readonly reads: boolean;
  seenAt: number;
}
