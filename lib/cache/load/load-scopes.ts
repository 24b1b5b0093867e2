import { AsyncLocalStorage } from 'node:async_hooks';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';

/** What a loader is called for. */
export interface ScopedLoad {
  readonly key: string;
  /** What the loader has left behind, a timer or a listener, runs inside of nothing any more. */
  readonly over: boolean;
}

/** The loads around a piece of code, the innermost first. */
interface LoadScope {
  readonly load: ScopedLoad;
  readonly outer: LoadScope | undefined;
}

/** How long (ms) nothing is loaded before the storage is put out of use. */
const IDLE = 1_000;

/** Which loaders run inside of which, and which wait for which: none may come to wait for itself. */
export class LoadScopes implements Expiring {
  private readonly scopes = new AsyncLocalStorage<LoadScope>();
  /** What the loader of a key waits for of what others load. */
  private readonly awaited = new Map<string, string[]>();
  private underWay = 0;
  private idle: Timeout | undefined;

  constructor(private readonly timeouts: Timeouts) {}

  /** Calls `loader` with the load, until `ended`. */
  begin<L extends ScopedLoad, R>(load: L, loader: (load: L) => R): R {
    this.underWay += 1;
    return this.scopes.run({ load, outer: this.current() }, loader, load);
  }

  ended(): void {
    this.underWay -= 1;
    if (this.underWay === 0) this.idle ??= this.timeouts.start(IDLE, this);
  }

  /**
   * Before Node.js 24 each promise of the process costs more while such a storage is in use, those of reads that find a
   * value too.
   */
  expire(): void {
    this.idle = undefined;
    if (this.underWay === 0) this.scopes.disable();
  }

  /** Runs what loads several keys that have begun. */
  async within<R>(keys: readonly string[], work: () => R | Promise<R>): Promise<R> {
    const loads = keys.map((key) => ({ key, over: false }));
    let scope = this.current();
    for (const load of loads) scope = { load, outer: scope };
    try {
      return await (scope ? this.scopes.run(scope, work) : work());
    } finally {
      for (const load of loads) load.over = true;
    }
  }

  /**
   * Whether who waited for the load of `key` here would wait for himself: inside of its loader, or of one that it waits
   * for.
   */
  wouldWaitForItself(key: string): boolean {
    if (this.underWay === 0) return false;
    const around = this.around();
    if (around.length === 0) return false;
    const leadTo = new Set([key]);
    for (const each of leadTo) {
      if (around.includes(each)) return true;
      for (const next of this.awaited.get(each) ?? []) leadTo.add(next);
    }
    return false;
  }

  /** This code waits for the load of `key` until `answer` has settled. */
  wait(key: string, answer: Promise<unknown>): void {
    if (this.underWay === 0) return;
    const around = this.around();
    if (around.length === 0) return;
    for (const each of around) {
      const keys = this.awaited.get(each);
      if (keys) keys.push(key);
      else this.awaited.set(each, [key]);
    }
    const settled = () => {
      for (const each of around) this.forget(each, key);
    };
    answer.then(settled, settled);
  }

  private around(): readonly string[] {
    const keys: string[] = [];
    for (let scope = this.current(); scope; scope = scope.outer) if (!scope.load.over) keys.push(scope.load.key);
    return keys;
  }

  private current(): LoadScope | undefined {
    let scope = this.scopes.getStore();
    while (scope?.load.over) scope = scope.outer;
    return scope;
  }

  private forget(by: string, key: string): void {
    const keys = this.awaited.get(by);
    const index = keys?.indexOf(key) ?? -1;
    if (!keys || index < 0) return;
    keys.splice(index, 1);
    if (keys.length === 0) this.awaited.delete(by);
  }
}
