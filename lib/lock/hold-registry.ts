import type { HeldLock, HoldObserver } from './held-lock.js';

/** How many lost holds are remembered, so that a late release by name is told of the loss. */
const REMEMBERED_LOSSES = 1_000;

/** The holds of one instance, by their names. A lost one leaves, so that whoever never releases it leaks nothing. */
export class HoldRegistry implements HoldObserver {
  private readonly live = new Map<string, HeldLock | Set<HeldLock>>();
  private readonly losses = new Map<string, HeldLock>();
  private idle: (() => void)[] = [];

  add(hold: HeldLock): void {
    const id = idOf(hold.keys);
    const present = this.live.get(id);
    if (!present) this.live.set(id, hold);
    else if (present instanceof Set) present.add(hold);
    else this.live.set(id, new Set([present, hold]));
  }

  lost(hold: HeldLock): void {
    if (!this.remove(hold)) return;
    this.losses.set(idOf(hold.keys), hold);
    if (this.losses.size > REMEMBERED_LOSSES) this.losses.delete(this.losses.keys().next().value as string);
  }

  ended(hold: HeldLock): void {
    this.remove(hold);
    if (this.losses.size === 0) return;
    const id = idOf(hold.keys);
    if (this.losses.get(id) === hold) this.losses.delete(id);
  }

  /** The holds of exactly these names. */
  of(names: readonly string[]): readonly HeldLock[] {
    const present = this.live.get(idOf(names));
    if (!present) return [];
    return present instanceof Set ? [...present] : [present];
  }

  lostOf(names: readonly string[]): HeldLock | undefined {
    return this.losses.get(idOf(names));
  }

  all(): readonly HeldLock[] {
    return [...this.live.values()].flatMap((present) => (present instanceof Set ? [...present] : [present]));
  }

  /** Resolves when nothing is held any more. */
  whenIdle(): Promise<void> {
    if (this.live.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }

  private remove(hold: HeldLock): boolean {
    const id = idOf(hold.keys);
    const present = this.live.get(id);
    if (present instanceof Set) {
      if (!present.delete(hold)) return false;
      if (present.size === 0) this.live.delete(id);
    } else if (present === hold) this.live.delete(id);
    else return false;
    if (this.live.size === 0) for (const resolve of this.idle.splice(0)) resolve();
    return true;
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}
