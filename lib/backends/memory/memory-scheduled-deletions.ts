import type { ScheduledDeletions } from '../../contracts/cache-store.js';
import type { MemoryConnection } from './memory-connection.js';

interface Deletion {
  readonly dueAt: number;
  /** A process carries it out; it is due again at `dueAt` unless it is done by then. */
  readonly claimed: boolean;
}

export class MemoryScheduledDeletions implements ScheduledDeletions {
  private readonly deletions = new Map<string, Deletion>();

  constructor(private readonly connection: MemoryConnection) {}

  schedule(keys: readonly string[], delay: number): Promise<void> {
    return this.connection.run(() => {
      const dueAt = performance.now() + delay;
      for (const key of keys) {
        const known = this.deletions.get(key);
        if (!known || known.claimed || known.dueAt < dueAt) this.deletions.set(key, { dueAt, claimed: false });
      }
      this.connection.tell((listener) => listener.onDeletionScheduled(delay));
    });
  }

  claim(limit: number, claim: number): Promise<{ readonly keys: readonly string[]; readonly next: number | null }> {
    return this.connection.run(() => {
      const now = performance.now();
      const inOrder = [...this.deletions].toSorted(([, one], [, other]) => one.dueAt - other.dueAt);
      const due = inOrder.filter(([, { dueAt }]) => dueAt <= now);
      const keys = due.slice(0, limit).map(([key]) => key);
      for (const key of keys) this.deletions.set(key, { dueAt: now + claim, claimed: true });
      return { keys, next: this.untilNext(now) };
    });
  }

  done(keys: readonly string[]): Promise<void> {
    return this.connection.run(() => {
      for (const key of keys) if (this.deletions.get(key)?.claimed) this.deletions.delete(key);
    });
  }

  private untilNext(now: number): number | null {
    let next: number | null = null;
    for (const { dueAt } of this.deletions.values()) next = Math.max(0, Math.min(next ?? Infinity, dueAt - now));
    return next;
  }
}
