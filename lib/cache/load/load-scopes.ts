import { AsyncLocalStorage } from 'node:async_hooks';
import type { Expiring, Timeout, Timeouts } from '../../timing/clock.js';

/** The load on behalf of which a loader runs. */
export interface ScopedLoad {
  readonly key: string;
  /** Whether the load is over. Timers and listeners that its loader left behind do not count as inside it. */
  readonly over: boolean;
}

/** The loads that a piece of code runs inside, the innermost first. */
interface LoadScope {
  readonly load: ScopedLoad;
  readonly outer: LoadScope | undefined;
}

/** Milliseconds without a load after which the storage is disabled. */
const IDLE = 1_000;

/** Knows which loads run inside others and which wait for others, so that no load waits for itself. */
export class LoadScopes implements Expiring {
  private readonly scopes = new AsyncLocalStorage<LoadScope>();
  /** For each key, the keys whose loads its loader waits for. */
  private readonly awaited = new Map<string, string[]>();
  /** How many loads run. While it is 0, no caller can wait for itself. */
  running = 0;
  private idle: Timeout | undefined = undefined;

  constructor(private readonly timeouts: Timeouts) {}

  /** Calls `loader` inside the load, which lasts until `ended`. */
  begin<L extends ScopedLoad, R>(load: L, loader: (load: L) => R): R {
    const outer = this.running > 0 ? this.current() : undefined;
    this.running += 1;
    return this.scopes.run({ load, outer }, loader, load);
  }

  ended(): void {
    this.running -= 1;
    if (this.running === 0) this.idle ??= this.timeouts.start(IDLE, this);
  }

  /**
   * Disables the storage: before Node.js 24, its use makes each promise of the process more expensive, including those
   * of cache hits.
   */
  expire(): void {
    this.idle = undefined;
    if (this.running === 0) this.scopes.disable();
  }

  /** Runs `work` inside the loads of all these keys, which have begun. */
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
   * Whether a caller here that waited for the load of `key` would wait for itself: it runs inside the loader of that
   * key, or inside one for which that loader waits.
   */
  wouldWaitForItself(key: string): boolean {
    if (this.running === 0) return false;
    const around = this.around();
    if (around.length === 0) return false;
    const leadTo = new Set([key]);
    for (const each of leadTo) {
      if (around.includes(each)) return true;
      for (const next of this.awaited.get(each) ?? []) leadTo.add(next);
    }
    return false;
  }

  /** Notes that the code here waits for the load of `key` until `answer` settles. */
  wait(key: string, answer: Promise<unknown>): void {
    if (this.running === 0) return;
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

/** The waiters of this process for loads of others, by key. */
export class LoadWaiters {
  private readonly byKey = new Map<string, Set<LoadWait>>();

  /** Starts to listen. Call it before asking for the lease, so that no message is missed. */
  expect(key: string): LoadWait {
    return new LoadWait(this, key);
  }

  /** @internal for `LoadWait` */
  add(key: string, waiter: LoadWait): void {
    const waiters = this.byKey.get(key);
    if (waiters) waiters.add(waiter);
    else this.byKey.set(key, new Set([waiter]));
  }

  /** @internal for `LoadWait` */
  remove(key: string, waiter: LoadWait): void {
    const waiters = this.byKey.get(key);
    waiters?.delete(waiter);
    if (waiters?.size === 0) this.byKey.delete(key);
  }

  wake(key: string): void {
    for (const waiter of this.byKey.get(key) ?? []) waiter.wake();
  }

  wakeMatching(matches: (key: string) => boolean): void {
    for (const [key, waiters] of this.byKey) if (matches(key)) for (const waiter of waiters) waiter.wake();
  }
}

/** A waiter checks after this time (ms), and then at doubled intervals, in case the message was lost. */
const FIRST_LOOK = 25;
const LONGEST_LOOK = 250;

/** Waits for the end of another process's load. */
class LoadWait {
  private woken = false;
  private look = FIRST_LOOK;
  private onWake: (() => void) | undefined = undefined;

  constructor(
    private readonly waiters: LoadWaiters,
    private readonly key: string,
  ) {
    waiters.add(key, this);
  }

  wake(): void {
    this.woken = true;
    this.onWake?.();
  }

  /** Resolves when the load ends, after `most` ms, or when it is time to check for a lost message. */
  async untilWoken(most: number): Promise<void> {
    if (!this.woken) {
      const delay = Math.min(most, this.look * (0.75 + Math.random() / 2));
      this.look = Math.min(this.look * 2, LONGEST_LOOK);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.max(1, Math.ceil(delay)));
        this.onWake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.onWake = undefined;
    }
    this.woken = false;
  }

  end(): void {
    this.waiters.remove(this.key, this);
  }
}
