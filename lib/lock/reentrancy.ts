import { AsyncLocalStorage } from 'node:async_hooks';
import type { HeldLock } from './held-lock.js';
import { LockTimeoutError } from './lock-errors.js';
import type { NamedBackend } from './named-backend.js';
import type { WaitBudget } from './wait-budget.js';

/**
 * The scope of one hold: what runs inside `withLock` or a decorated method, followed through its asynchronous calls. It
 * admits one nested hold of a name at a time, so that siblings (`Promise.all`) take turns instead of racing, and ends
 * with its hold: work that outlives it is outside.
 */
export class HoldScope {
  /** For each name that a nested hold has: who waits for its turn, in order of arrival. */
  private turns: Map<string, (() => void)[]> | undefined;

  constructor(
    readonly hold: HeldLock,
    readonly parent: HoldScope | undefined,
  ) {
    hold.scope = this;
  }

  get open(): boolean {
    return !this.hold.isReleased;
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
      if (!this.open) return undefined;
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
    throw new LockTimeoutError([name], {
      waited: budget.waited(),
      remaining: this.hold.remaining(),
      owner: this.hold.owner,
    });
  }

  private passOn(name: string): void {
    const next = this.turns?.get(name)?.shift();
    if (next) next();
    else this.turns?.delete(name);
  }

  /** Its hold has ended. */
  close(): void {
    for (const waiting of this.turns?.values() ?? []) for (const admit of waiting.splice(0)) admit();
  }
}

/** Which holds the running code is inside of, followed by `AsyncLocalStorage`; one for each module instance. */
export class Reentrancy {
  private readonly storage = new AsyncLocalStorage<HoldScope>();

  run<T>(hold: HeldLock, body: (hold: HeldLock) => T): T {
    return this.storage.run(new HoldScope(hold, this.storage.getStore()), body, hold);
  }

  /** Whether the running code is inside of any hold. */
  get inside(): boolean {
    return this.storage.getStore() !== undefined && this.scopes().next().done === false;
  }

  /** The open scopes around the running code, innermost first. */
  *scopes(): Generator<HoldScope, void> {
    for (let scope = this.storage.getStore(); scope; scope = scope.parent) if (scope.open) yield scope;
  }

  /** The innermost open scope that holds the name. */
  covering(backend: NamedBackend, name: string): HoldScope | undefined {
    for (const scope of this.scopes()) if (scope.hold.partOf(backend, name)) return scope;
    return undefined;
  }
}
