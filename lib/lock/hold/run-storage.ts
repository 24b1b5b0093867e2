import { AsyncLocalStorage, AsyncResource, executionAsyncResource } from 'node:async_hooks';

interface Entry<T> {
  value: T;
  readonly outside: T | undefined;
  /** Whether the run in which it was entered has ended. */
  over: boolean;
}

/**
 * Before Node.js 24, an async resource that runs more than once keeps a value entered in one run for the next: the
 * second tick of an interval, or the second request of a connection, would see the value of the first.
 */
const RESOURCES_KEEP_STORES = ((): boolean => {
  const storage = new AsyncLocalStorage<true>();
  const resource = new AsyncResource('RunStorage');
  resource.runInAsyncScope(() => storage.enterWith(true));
  const kept = resource.runInAsyncScope(() => storage.getStore());
  storage.disable();
  return kept === true;
})();

/**
 * An `AsyncLocalStorage` in which an entered value lasts only for the run of the code that entered it, and for what
 * that run calls.
 */
export class RunStorage<T extends object> extends AsyncLocalStorage<T> {
  /** By async resource; used only before Node.js 24. */
  private readonly entries = new WeakMap<object, Entry<T>>();

  /** `entered` is what `getStore` returned. If its run is over, returns the value outside of that run instead. */
  lasting(entered: T): T | undefined {
    if (!RESOURCES_KEEP_STORES) return entered;
    const resource = executionAsyncResource();
    const entry = this.entries.get(resource);
    if (!entry?.over || entry.value !== entered) return entered;
    this.entries.delete(resource);
    this.enterWith(entry.outside as T);
    return entry.outside;
  }

  /** Sets the value for the rest of this run and what it calls. */
  enter(value: T): void {
    const store = this.getStore();
    const outside = store && this.lasting(store);
    this.enterWith(value);
    if (RESOURCES_KEEP_STORES) this.remember(value, outside);
  }

  private remember(value: T, outside: T | undefined): void {
    const resource = executionAsyncResource();
    const present = this.entries.get(resource);
    if (present && !present.over) {
      // Otherwise it was entered inside of a run() of this storage, which restores the former value.
      if (present.value === outside) present.value = value;
      return;
    }
    const entry: Entry<T> = { value, outside, over: false };
    this.entries.set(resource, entry);
    void Promise.resolve().then(() => {
      entry.over = true;
    });
  }
}
