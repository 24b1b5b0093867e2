/** Between two tries (ms): a random time in this range, so that the processes do not try in step. */
const USUAL = [5, 25] as const;
/** After its own turn (ms): longer than the others pause between two tries, so that one of them comes first. */
const AFTER_TURN = [30, 50] as const;
/** Until others have had a turn (ms), and then: the process that has waited longest tries most often. */
const OTHERS_FIRST = 120;
const AT_FIRST = [15, 25] as const;
const AT_LAST = [5, 10] as const;
/** How long (ms) a turn is remembered. Of more processes than have turns in this time, all try at the usual pace. */
const LATELY = 500;

interface EndedTurn {
  readonly at: number;
  /** Until then, this process lets the others try. */
  readonly waysUntil: number;
}

/** The turns of this process that others waited for the end of: decides when it tries to get the name again. */
export class EndedTurns {
  /** By name; the latest at the end. */
  private readonly turns = new Map<string, EndedTurn>();

  ended(prefix: string | undefined, name: string): void {
    const [now, key] = [performance.now(), keyOf(prefix, name)];
    this.turns.delete(key);
    this.turns.set(key, { at: now, waysUntil: now + between(AFTER_TURN) });
    for (const [old, { at }] of this.turns) {
      if (now - at < LATELY) break;
      this.turns.delete(old);
    }
  }

  /** Whether those that wait in other processes come before a caller of this one. */
  givesWay(prefix: string | undefined, name: string): boolean {
    return this.turns.size > 0 && (this.turns.get(keyOf(prefix, name))?.waysUntil ?? 0) > performance.now();
  }

  /** Milliseconds until the next try. */
  pace(prefix: string | undefined, name: string): number {
    const now = performance.now();
    const turn = this.turns.get(keyOf(prefix, name));
    if (!turn || now - turn.at > LATELY) return between(USUAL);
    if (turn.waysUntil > now) return turn.waysUntil - now;
    return between(now - turn.at < OTHERS_FIRST ? AT_FIRST : AT_LAST);
  }
}

function keyOf(prefix: string | undefined, name: string): string {
  return prefix === undefined ? name : `${prefix}:${name}`;
}

function between([least, most]: readonly [number, number]): number {
  return least + Math.random() * (most - least);
}
