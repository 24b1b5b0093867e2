import { BareAcquisition, type Scope } from './bare-acquisition.js';
import type { HeldLock } from './held-lock.js';
import { HoldScope, nearestOpen } from './hold-scope.js';
import type { NamedBackend } from '../backend/named-backend.js';
import { RunStorage } from './run-storage.js';

/** The holds that the running code is inside of, and those that it acquired itself; one for each module instance. */
export class HoldContext {
  private readonly storage = new RunStorage<Scope | BareAcquisition>();

  /** Runs `body` in a new scope, which closes with the hold. */
  run<T>(hold: HeldLock, body: (hold: HeldLock) => T): T {
    const scope = new HoldScope(hold, this.scope, this.acquisition);
    hold.context = scope;
    return this.storage.run(scope, body, hold);
  }

  /** The running code calls `acquire` for these names: it, and what it calls, may release them by name. */
  acquiring(names: readonly string[]): BareAcquisition {
    const acquisition = new BareAcquisition(names, this.scope, this.acquisition);
    this.storage.enter(acquisition);
    return acquisition;
  }

  /** Runs `callback` in the scopes that the holder is inside of, and in no others. */
  runAs({ context }: HeldLock, callback: () => void): void {
    if (context instanceof HoldScope || context instanceof BareAcquisition) this.storage.run(context, callback);
    else this.storage.exit(callback);
  }

  /** Whether the running code is inside of any hold. */
  get inside(): boolean {
    return this.scope !== undefined;
  }

  /** The innermost open scope around the running code. */
  get scope(): Scope | undefined {
    const { store } = this.storage;
    return store instanceof HoldScope ? nearestOpen(store) : store?.scope;
  }

  /** The innermost open scope that holds the name. */
  covering(backend: NamedBackend, name: string): Scope | undefined {
    for (let { scope } = this; scope; scope = scope.parent) if (scope.hold?.partOf(backend, name)) return scope;
    return undefined;
  }

  /**
   * The innermost hold of exactly these names that the running code is inside of or acquired. The last `acquire` of
   * them decides, also if it failed: the hold of an earlier one is then not meant.
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
    return store instanceof HoldScope ? store.earlier : store;
  }
}

function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index]);
}
