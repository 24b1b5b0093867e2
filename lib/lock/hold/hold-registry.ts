import type { HeldLock, HoldObserver } from './held-lock.js';
import type { HoldContext } from './hold-context.js';
import { LinkedList } from '../../timing/linked-list.js';

/** The holds of one instance. A lost one leaves, so that a caller which never releases it leaks nothing. */
export class HoldRegistry implements HoldObserver {
  private readonly live = new LinkedList<HeldLock>();
  private idle: (() => void)[] = [];

  constructor(private readonly context: HoldContext) {}

  add(hold: HeldLock): void {
    hold.place = this.live.push(hold);
  }

  lost(hold: HeldLock): void {
    this.remove(hold);
  }

  ended(hold: HeldLock): void {
    this.remove(hold);
  }

  runAs(hold: HeldLock, callback: () => void): void {
    this.context.runAs(hold, callback);
  }

  all(): readonly HeldLock[] {
    return this.live.toArray();
  }

  /** Resolves when nothing is held any more. */
  whenIdle(): Promise<void> {
    if (!this.live.first) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }

  private remove(hold: HeldLock): void {
    if (!hold.place?.leave() || this.live.first) return;
    for (const resolve of this.idle.splice(0)) resolve();
  }
}
