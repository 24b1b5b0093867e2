/** Between two tries (ms): a random time in this range, so that the processes do not try in step. */
const USUAL = [5, 25] as const;
/** After its own turn (ms): longer than the others pause between two tries, so that one of them comes first. */
const AFTER_TURN = [30, 50] as const;
/** Until others have had a turn (ms), and then: who has waited longest tries most often. */
const OTHERS_FIRST = 120;
const AT_FIRST = [15, 25] as const;
const AT_LAST = [5, 10] as const;
/** How long (ms) this is remembered. Of more processes than have turns in this time, all try at the usual pace. */
const LATELY = 500;

interface Contended {
  /** When another process was last seen to have the name. */
  seen: number;
  /** When the last turn of this process ended, and until when it lets the others try. */
  turnEnded: number;
  waysUntil: number;
}

/** The names that other processes had of late, and when this one had its turn: decides when it tries again. */
export class ContendedNames {
  /** The latest at the end. */
  private readonly names = new Map<string, Contended>();

  /** Another process was seen to have the name. */
  taken(prefix: string | undefined, name: string): void {
    const now = performance.now();
    this.note(prefix, name, now).seen = now;
  }

  turnEnded(prefix: string | undefined, name: string): void {
    const now = performance.now();
    const contended = this.note(prefix, name, now);
    contended.turnEnded = now;
    contended.waysUntil = now + between(AFTER_TURN);
  }

  has(prefix: string | undefined, name: string): boolean {
    if (this.names.size === 0) return false;
    const contended = this.names.get(keyOf(prefix, name));
    return contended !== undefined && performance.now() - contended.seen < LATELY;
  }

  /** Whether those that wait in other processes come before a caller of this one. */
  givesWay(prefix: string | undefined, name: string): boolean {
    return this.names.size > 0 && (this.names.get(keyOf(prefix, name))?.waysUntil ?? 0) > performance.now();
  }

  /** Milliseconds until the next try. */
  pace(prefix: string | undefined, name: string): number {
    const now = performance.now();
    const contended = this.names.get(keyOf(prefix, name));
    if (!contended) return between(USUAL);
    if (contended.waysUntil > now) return contended.waysUntil - now;
    const waited = now - contended.turnEnded;
    if (waited > LATELY) return between(USUAL);
    return between(waited < OTHERS_FIRST ? AT_FIRST : AT_LAST);
  }

  private note(prefix: string | undefined, name: string, now: number): Contended {
    const key = keyOf(prefix, name);
    const contended = this.names.get(key) ?? { seen: -Infinity, turnEnded: -Infinity, waysUntil: -Infinity };
    this.names.delete(key);
    this.names.set(key, contended);
    // Each was noted after those before it.
    for (const [old, { seen, turnEnded }] of this.names) {
      if (old === key || now - Math.max(seen, turnEnded) < LATELY) break;
      this.names.delete(old);
    }
    return contended;
  }
}

function keyOf(prefix: string | undefined, name: string): string {
  return prefix === undefined ? name : `${prefix}:${name}`;
}

function between([least, most]: readonly [number, number]): number {
  return least + Math.random() * (most - least);
}
