import { BareAcquisition } from './bare-acquisition.js';
import type { HeldLock } from './held-lock.js';
import { HoldScope, nearestOpen } from './hold-scope.js';
import type { NamedBackend } from '../backend/named-backend.js';
import { RunStorage } from './run-storage.js';

/**
 * Which holds the running code is inside of, and what it acquired itself, followed by `RunStorage`; one for each
 * module instance.
 */
export class HoldContext {
  private readonly storage = new RunStorage<HoldScope | BareAcquisition>();

  /** Runs `body` in a scope of its own, which ends with the hold. */
  run<T>(hold: HeldLock, body: (hold: HeldLock) => T): T {
    const scope = new HoldScope(hold, this.scope, this.acquisition);
    hold.context = scope;
    return this.storage.run(scope, body, hold);
  }

  /** From here on the running code, and what it calls, has asked for these names by a bare `acquire`. */
  acquiring(names: readonly string[]): BareAcquisition {
    const acquisition = new BareAcquisition(names, this.scope, this.acquisition);
    this.storage.enter(acquisition);
    return acquisition;
  }

  /** Runs `callback` where the holder runs: inside of what that is inside of, and of nothing else. */
  runAs(hold: HeldLock, callback: () => void): void {
    if (hold.context) this.storage.run(hold.context, callback);
    else this.storage.exit(callback);
  }

  /** Whether the running code is inside of any hold. */
  get inside(): boolean {
    return this.scope !== undefined;
  }

  /** The innermost open scope around the running code. */
  get scope(): HoldScope | undefined {
    const { store } = this.storage;
    return store instanceof HoldScope ? nearestOpen(store) : store?.scope;
  }

  /** The innermost open scope that holds the name. */
  covering(backend: NamedBackend, name: string): HoldScope | undefined {
    for (let { scope } = this; scope; scope = scope.parent) if (scope.hold?.partOf(backend, name)) return scope;
    return undefined;
  }

  /**
   * The innermost hold of exactly these names that the running code is inside of or acquired. Its last `acquire` of
   * them decides, also when that got nothing: what an earlier one has is then not meant.
   */
  holdOf(names: readonly string[]): HeldLock | undefined {
    let { scope, acquisition } = this;
    for (;;) {
      for (; acquisition && acquisition.scope === scope; acquisition = acquisition.before) {
        if (sameNames(acquisition.names, names)) return acquisition.got;
      }
      if (!scope) return undefined;
      if (scope.hold && sameNames(scope.hold.keys, names)) return scope.hold;
      scope = scope.parent;
    }
  }

  private get acquisition(): BareAcquisition | undefined {
    const { store } = this.storage;
    return store instanceof HoldScope ? store.acquisition : store;
  }
}

function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index]);
}
