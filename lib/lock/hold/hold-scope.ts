import type { BareAcquisition } from './bare-acquisition.js';
import type { HeldLock } from './held-lock.js';
import { LockTimeoutError } from '../../errors/lock-errors.js';
import type { WaitBudget } from '../waiting/wait-budget.js';

/**
 * The scope of one hold: what runs inside `withLock` or a decorated method, followed through its asynchronous calls. It
 * admits one nested hold of a name at a time, so that siblings (`Promise.all`) take turns instead of racing, and ends
 * with its hold: work that outlives it is outside.
 *
 * Work that outlives it may live for ever, and keeps its scope: a closed one lets go of its hold, and of every scope
 * around it that is closed too.
 */
export class HoldScope {
  /** For each name that a nested hold has: who waits for its turn, in order of arrival. */
  private turns: Map<string, (() => void)[]> | undefined;
  private held: HeldLock | undefined;

  constructor(
    hold: HeldLock,
    private outer: HoldScope | undefined,
    /** The last bare `acquire` before it in its async context. */
    readonly acquisition: BareAcquisition | undefined,
  ) {
    this.held = hold;
  }

  /** Its hold; `undefined` once it is closed. */
  get hold(): HeldLock | undefined {
    return this.held;
  }

  /** The nearest open scope around it. */
  get parent(): HoldScope | undefined {
    return (this.outer = nearestOpen(this.outer));
  }

  /**
   * Waits for the turn of `name`. Answers what ends the turn, or `undefined` when the scope ended first.
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
      // Admitted in the very moment of giving up: the turn goes to the next.
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

  /** Its hold has ended. */
  close(): void {
    this.held = undefined;
    this.outer = nearestOpen(this.outer);
    for (const waiting of this.turns?.values() ?? []) for (const admit of waiting.splice(0)) admit();
  }
}

/** The scope itself if it is open, else the nearest open one around it. */
export function nearestOpen(scope: HoldScope | undefined): HoldScope | undefined {
  return !scope || scope.hold ? scope : scope.parent;
}
