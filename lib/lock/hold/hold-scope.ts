import type { HeldLock } from './held-lock.js';
import { LockTimeoutError } from '../../errors/lock-errors.js';
import type { WaitBudget } from '../waiting/wait-budget.js';

/**
 * The scope of one hold: what runs inside `withLock` or a decorated method, followed through its asynchronous calls. It
 * admits one nested hold of a name at a time, so that siblings (`Promise.all`) take turns instead of racing. It closes
 * when its hold ends: work that goes on after that is outside.
 *
 * Such work may run for ever with a reference to its scope, so a closed scope drops its hold and all closed scopes
 * around it. `Earlier` is what ran before it in its async context.
 */
export class HoldScope<Earlier = unknown> {
  /** By name that a nested hold has: the siblings that wait for their turn, in order of arrival. */
  private turns: Map<string, (() => void)[]> | undefined;
  private held: HeldLock | undefined;

  constructor(
    hold: HeldLock,
    private outer: HoldScope<Earlier> | undefined,
    readonly earlier: Earlier,
  ) {
    this.held = hold;
  }

  /** Its hold; `undefined` once it is closed. */
  get hold(): HeldLock | undefined {
    return this.held;
  }

  /** The nearest open scope around it. */
  get parent(): HoldScope<Earlier> | undefined {
    return (this.outer = nearestOpen(this.outer));
  }

  /**
   * Waits for the turn of `name`. Answers a function that ends the turn, or `undefined` when the scope closed first.
   *
   * @throws LockTimeoutError when the budget is spent
   */
  async takeTurn(name: string, budget: WaitBudget): Promise<(() => void) | undefined> {
    const turns = (this.turns ??= new Map());
    const waiting = turns.get(name);
    if (waiting) {
      await this.queue(waiting, name, budget);
      if (!this.held) return undefined;
    } else turns.set(name, []);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.passOn(name);
    };
  }

  private async queue(waiting: (() => void)[], name: string, budget: WaitBudget): Promise<void> {
    let admit = () => {};
    const admitted = new Promise<true>((resolve) => {
      admit = () => resolve(true);
    });
    waiting.push(admit);
    const leave = () => {
      const place = waiting.indexOf(admit);
      // Its turn began as it gave up: the turn passes to the next sibling.
      if (place === -1) this.passOn(name);
      else waiting.splice(place, 1);
    };
    try {
      if (await budget.until(admitted, budget.remaining())) return;
    } catch (error) {
      leave();
      throw error;
    }
    leave();
    const { held } = this;
    throw new LockTimeoutError([name], {
      waited: budget.waited(),
      remaining: held?.remaining() ?? 0,
      ...(held && { owner: held.owner }),
    });
  }

  private passOn(name: string): void {
    const next = this.turns?.get(name)?.shift();
    if (next) next();
    else this.turns?.delete(name);
  }

  /** Closes the scope, as its hold has ended: the waiting siblings go on without it. */
  close(): void {
    this.held = undefined;
    this.outer = nearestOpen(this.outer);
    for (const waiting of this.turns?.values() ?? []) for (const admit of waiting.splice(0)) admit();
  }
}

/** The scope itself if it is open, else the nearest open one around it. */
export function nearestOpen<T>(scope: HoldScope<T> | undefined): HoldScope<T> | undefined {
  return !scope || scope.hold ? scope : scope.parent;
}
