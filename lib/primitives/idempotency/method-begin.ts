import { AsyncLocalStorage } from 'node:async_hooks';

/** The method below all the wrappers that this library has put around it. */
const METHODS = new WeakMap<object, object>();

/** The watches of each method that go on. */
const WATCHES = new WeakMap<object, Set<MethodBegin>>();

const watching = new AsyncLocalStorage<MethodBegin>();

/** The method itself, of a wrapper that `noteWrapper` knows. */
export function methodBelow(callable: object): object {
  return METHODS.get(callable) ?? callable;
}

export function noteWrapper(wrapper: object, wrapped: object): void {
  METHODS.set(wrapper, methodBelow(wrapped));
}

/** How a call ended. */
export type End = { readonly value: unknown } | { readonly error: unknown };

export function endOf(result: Promise<unknown>): Promise<End> {
  return result.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
}

export function outcomeOf(end: End): unknown {
  if ('error' in end) throw end.error;
  return end.value;
}

/**
 * Watches whether a method begins: what stands above it (pipes, interceptors, other decorators) may refuse the call,
 * and then nothing was done. In doubt, it counts as begun.
 */
export class MethodBegin {
  /** How many watches go on, of any method: a call looks for its own only then. */
  static watches = 0;
  begun = false;
  private readonly outer = watching.getStore();

  constructor(private readonly method: object) {}

  /** Calls `body`, which may call the method, and watches until it has ended. */
  async around<T>(body: () => Promise<T>): Promise<T> {
    const watches = WATCHES.get(this.method) ?? new Set();
    WATCHES.set(this.method, watches.add(this));
    MethodBegin.watches += 1;
    try {
      return await watching.run(this, body);
    } finally {
      watches.delete(this);
      MethodBegin.watches -= 1;
    }
  }

  /** Told by the innermost wrapper of the method, and by one that has a result to stand for it. */
  static note(method: object): void {
    const watches = WATCHES.get(method);
    if (!watches || watches.size === 0) return;
    let isKnown = false;
    for (let each = watching.getStore(); each; each = each.outer) {
      if (!watches.has(each)) continue;
      each.begun = true;
      isKnown = true;
    }
    // Code between has lost the asynchronous context: it may be the call of any of them.
    if (!isKnown) for (const each of watches) each.begun = true;
  }
}

/**
 * @internal What a body returns whose work has not begun, such as that of a request which a pipe has refused: nothing
 * is kept, and the next call with the key is a first one.
 */
export class NothingDone {
  constructor(
    /** What the caller gets: returns it or throws it. */
    readonly outcome: () => unknown,
  ) {}
}
