import { AsyncLocalStorage, AsyncResource, executionAsyncResource } from 'node:async_hooks';

interface Entry<T> {
  value: T;
  readonly outside: T | undefined;
  /** Whether the run has ended in which it was entered. */
  over: boolean;
}

/**
 * Before Node.js 24 an async resource that runs more than once keeps what was entered in one run for the next: the
 * second tick of an interval, or the second request of a connection, would stand where the first one went.
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
 * An `AsyncLocalStorage` in which a value that was entered lasts for the run of the code that entered it, and for what
 * that calls.
 */
export class RunStorage<T extends object> {
  private readonly storage = new AsyncLocalStorage<T>();
  /** By async resource, where resources keep stores. */
  private readonly entries = new WeakMap<object, Entry<T>>();

  get store(): T | undefined {
    const store = this.storage.getStore();
    if (store === undefined || !RESOURCES_KEEP_STORES) return store;
    const resource = executionAsyncResource();
    const entry = this.entries.get(resource);
    if (!entry?.over || entry.value !== store) return store;
    this.entries.delete(resource);
    this.storage.enterWith(entry.outside as T);
    return entry.outside;
  }

  run<R, A extends unknown[]>(store: T, callback: (...args: A) => R, ...args: A): R {
    return this.storage.run(store, callback, ...args);
  }

  exit(callback: () => void): void {
    this.storage.exit(callback);
  }

  /** From here on the running code, and what it calls, has `value`. */
  enter(value: T): void {
    const { store: outside } = this;
    this.storage.enterWith(value);
    if (RESOURCES_KEEP_STORES) this.remember(value, outside);
  }

  private remember(value: T, outside: T | undefined): void {
    const resource = executionAsyncResource();
    const present = this.entries.get(resource);
    if (present && !present.over) {
      // Otherwise it was entered inside of a run() of this storage, which undoes it.
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
