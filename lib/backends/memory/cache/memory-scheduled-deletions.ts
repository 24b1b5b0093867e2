import type { ScheduledDeletions } from '../../../contracts/cache-store.js';
import type { MemoryConnection } from './memory-connection.js';

interface Deletion {
  readonly dueAt: number;
  /** Whether a process carries it out now. If it does not finish by `dueAt`, the deletion is due again. */
  readonly claimed: boolean;
}

export class MemoryScheduledDeletions implements ScheduledDeletions {
  private readonly deletions = new Map<string, Deletion>();

  constructor(private readonly connection: MemoryConnection) {}

  schedule(names: readonly string[], delay: number): Promise<void> {
    return this.connection.run(() => {
      const dueAt = performance.now() + delay;
      for (const name of names) {
        const known = this.deletions.get(name);
        if (!known || known.claimed || known.dueAt < dueAt) this.deletions.set(name, { dueAt, claimed: false });
      }
      this.connection.tell((listener) => listener.onDeletionScheduled(delay));
    });
  }

  claim(limit: number, claim: number): Promise<{ readonly names: readonly string[]; readonly next: number | null }> {
    return this.connection.run(() => {
      const now = performance.now();
      const inOrder = [...this.deletions].toSorted(([, one], [, other]) => one.dueAt - other.dueAt);
      const due = inOrder.filter(([, { dueAt }]) => dueAt <= now);
      const names = due.slice(0, limit).map(([name]) => name);
      for (const name of names) this.deletions.set(name, { dueAt: now + claim, claimed: true });
      return { names, next: this.untilNext(now) };
    });
  }

  renew(names: readonly string[], claim: number): Promise<void> {
    return this.connection.run(() => {
      const dueAt = performance.now() + claim;
      for (const name of names)
        if (this.deletions.get(name)?.claimed) this.deletions.set(name, { dueAt, claimed: true });
    });
  }

  done(names: readonly string[]): Promise<void> {
    return this.connection.run(() => {
      for (const name of names) if (this.deletions.get(name)?.claimed) this.deletions.delete(name);
    });
  }

  private untilNext(now: number): number | null {
    let next: number | null = null;
    for (const { dueAt } of this.deletions.values()) next = Math.max(0, Math.min(next ?? Infinity, dueAt - now));
    return next;
  }
}
