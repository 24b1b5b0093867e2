import { AsyncResource } from 'node:async_hooks';
import { CacheConfigError } from './cache-errors.js';
import type { BatchLoader, Loader, LoaderContext } from './cache-loader.js';
import type { LoadScopes } from './load-scopes.js';
import type { LoadRendezvous } from './load-rendezvous.js';

interface Asked {
  readonly key: string;
  readonly context: LoaderContext;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** Calls one loader for many keys: when it is known of each whether it has to be loaded. */
export class BatchLoad {
  private readonly undecided: Set<string>;
  private asked: Asked[] = [];

  /** What decides last, and so calls the loader, may be an answer to another caller. */
  private readonly caller = new AsyncResource('CacheRead');

  constructor(
    keys: readonly string[],
    private readonly loader: BatchLoader<unknown>,
    private readonly scopes: LoadScopes,
    private readonly keyPrefix: string,
  ) {
    this.undecided = new Set(keys);
  }

  /** The loader of one key, which takes part in that of all. */
  loaderOf(key: string): Loader<unknown> {
    return (context) =>
      new Promise((resolve, reject) => {
        this.asked.push({ key, context, resolve, reject });
        this.decide(key);
      });
  }

  rendezvousOf(key: string): LoadRendezvous {
    return { decided: () => this.decide(key) };
  }

  /** This key has a value, or waits for one, or is about to be loaded. */
  decide(key: string): void {
    this.undecided.delete(key);
    if (this.undecided.size > 0 || this.asked.length === 0) return;
    const { asked } = this;
    this.asked = [];
    this.load(asked).catch((error: unknown) => {
      for (const each of asked) each.reject(error);
    });
  }

  private async load(asked: readonly Asked[]): Promise<void> {
    const keys = asked.map(({ key }) => key);
    const call = () => this.loader(keys, jointContext(asked));
    const full = keys.map((key) => this.keyPrefix + key);
    const values = await this.caller.runInAsyncScope(() => this.scopes.within(full, call));
    if (!Array.isArray(values) && !(values instanceof Map)) {
      throw new CacheConfigError(
        `The batch loader returned ${typeof values}; return a list of values in the order of the keys, or a Map by key`,
        keys,
      );
    }
    if (Array.isArray(values) && values.length !== keys.length) {
      throw new CacheConfigError(
        `The batch loader returned ${values.length} values for ${keys.length} keys; return one for each, in their order, or a Map by key`,
        keys,
      );
    }
    for (const [index, each] of asked.entries()) {
      const value: unknown = values instanceof Map ? values.get(each.key) : (values as readonly unknown[])[index];
      each.resolve(value ?? null);
    }
  }
}

/** What is said of one load is said of all. */
function jointContext(asked: readonly Asked[]): LoaderContext {
  const contexts = asked.map(({ context }) => context);
  return {
    get signal() {
      return AbortSignal.any(contexts.map(({ signal }) => signal));
    },
    stale: undefined,
    skip: () => contexts.forEach((context) => context.skip()),
    setTtl: (ttl) => contexts.forEach((context) => context.setTtl(ttl)),
    setTags: (tags) => contexts.forEach((context) => context.setTags(tags)),
  };
}
