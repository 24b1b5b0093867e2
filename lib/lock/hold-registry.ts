import type { HeldLock, HoldObserver } from './held-lock.js';
import { LinkedList } from '../timing/linked-list.js';

/** How many lost holds are remembered, so that a late release by name is told of the loss. */
const REMEMBERED_LOSSES = 1_000;

/** The holds of one instance, by their names. A lost one leaves, so that whoever never releases it leaks nothing. */
export class HoldRegistry implements HoldObserver {
  private readonly live = new LinkedList<HeldLock>();
  private readonly losses = new Map<string, HeldLock>();
  private idle: (() => void)[] = [];

  add(hold: HeldLock): void {
    hold.place = this.live.push(hold);
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
    const id = idOf(names);
    return this.all().filter((hold) => idOf(hold.keys) === id);
  }

  lostOf(names: readonly string[]): HeldLock | undefined {
    return this.losses.get(idOf(names));
  }

  all(): readonly HeldLock[] {
    return this.live.toArray();
  }

  /** Resolves when nothing is held any more. */
  whenIdle(): Promise<void> {
    if (!this.live.first) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }

  private remove(hold: HeldLock): boolean {
    if (!hold.place?.leave()) return false;
    if (!this.live.first) for (const resolve of this.idle.splice(0)) resolve();
    return true;
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}
