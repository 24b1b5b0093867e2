/**
 * A promise, or another object that settles once by calling one of two functions: every lock takes this path. The
 * request is under way when it is returned, and it keeps its outcome: `then` may be called in any later turn, and
 * several times.
 */
export interface Pending<T> {
  /** Calls one of the two functions, once, and never before it returns. */
  then(answered: (answer: T) => void, failed: (error: unknown) => void): unknown;
}

/** The stores of this package. What another one answers is checked. */
export const OWN_STORES = new WeakSet<object>();

/** Marks a store of this package. */
export function ownStore<Store extends object>(store: Store): Store {
  OWN_STORES.add(store);
  return store;
}

/** A line for the operator. */
export interface Notice {
  readonly level: 'debug' | 'log' | 'warn';
  /** One line: which server, what happened, and what to do. */
  readonly message: string;
}

/** What a module passes to the stores that it opens. */
export interface StoreContext {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** Milliseconds that one call may take. */
  readonly commandTimeout: number;
  /** Logs a line: at start-up, and later when something happens of which no call fails. */
  readonly report: (notice: Notice) => void;
}

/** Marks refusals: a second installed copy of the package has a class of its own. */
const REFUSAL = Symbol.for('nest-redis-lock.refusal');

/**
 * The store, a pool or a permission refuses to serve, and goes on refusing until somebody mends the cause: connections
 * that share sessions, an isolation level that breaks the statements, a missing right. A backend throws it from `start`
 * or from any call. From then on every call but a release fails with it for as long as the process uses the backend,
 * and none asks the store again: what passes by chance the next time is as unsafe as before. Its message is one line
 * that names the server, the cause and the remedy.
 */
export class BackendRefusal extends Error {
  override readonly name = 'BackendRefusal';
  readonly [REFUSAL] = true;
}

/**
 * Whether a store goes on refusing until somebody mends the cause, as for a command that it does not have. `ofKey`:
 * also if it refuses one key alone, which is of another type.
 */
export function isLasting(error: unknown, { ofKey }: { ofKey: boolean }): boolean {
  let each = error;
  for (let depth = 0; depth < 5 && each instanceof Error; depth++) {
    const { lasts } = each as { lasts?: unknown };
    if (REFUSAL in each || lasts === true || (ofKey && lasts === 'key')) return true;
    each = each.cause;
  }
  return false;
}

/** The refusal that `error` is, or that caused it. */
export function refusalIn(error: unknown): BackendRefusal | undefined {
  let each = error;
  for (let depth = 0; depth < 5 && each instanceof Error; depth++) {
    if (REFUSAL in each) return each as BackendRefusal;
    each = each.cause;
  }
  return undefined;
}
