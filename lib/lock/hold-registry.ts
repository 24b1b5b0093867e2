import type { HeldLock } from './held-lock.js';

/** How many lost holds are remembered, so that a late release by name is told of the loss. */
const REMEMBERED_LOSSES = 1_000;

/** The holds of one instance, by their names. A lost one leaves, so that whoever never releases it leaks nothing. */
export class HoldRegistry {
  private readonly live = new Map<string, Set<HeldLock>>();
  private readonly lost = new Map<string, HeldLock>();
  private idle: (() => void)[] = [];

  add(hold: HeldLock): void {
    const id = idOf(hold.keys);
    const holds = this.live.get(id) ?? new Set();
    this.live.set(id, holds.add(hold));
    hold.onLoss(() => this.moveToLost(hold));
    hold.onEnd(() => {
      this.remove(hold);
      if (this.lost.get(id) === hold) this.lost.delete(id);
    });
  }

  /** The holds of exactly these names. */
  of(names: readonly string[]): readonly HeldLock[] {
    return [...(this.live.get(idOf(names)) ?? [])];
  }

  lostOf(names: readonly string[]): HeldLock | undefined {
    return this.lost.get(idOf(names));
  }

  all(): readonly HeldLock[] {
    return [...this.live.values()].flatMap((holds) => [...holds]);
  }

  /** Resolves when nothing is held any more. */
  whenIdle(): Promise<void> {
    if (this.live.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }

  private moveToLost(hold: HeldLock): void {
    if (!this.remove(hold)) return;
    this.lost.set(idOf(hold.keys), hold);
    if (this.lost.size > REMEMBERED_LOSSES) this.lost.delete(this.lost.keys().next().value as string);
  }

  private remove(hold: HeldLock): boolean {
    const id = idOf(hold.keys);
    const holds = this.live.get(id);
    if (!holds?.delete(hold)) return false;
    if (holds.size === 0) this.live.delete(id);
    if (this.live.size === 0) for (const resolve of this.idle.splice(0)) resolve();
    return true;
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}
