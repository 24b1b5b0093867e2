import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import { CacheTimeoutError } from '../../errors/cache-errors.js';
import type { Loader, LoaderContext } from './cache-loader.js';
import type { CacheCounters } from '../store/cache-stats.js';
import { milliseconds, type Duration } from '../options/cache-durations.js';
import { requireTags } from '../options/entry-settings.js';
import { LoadScopes, type ScopedLoad } from './load-scopes.js';

/** What a loader returned, and said beside it. */
export interface Loaded {
  readonly value: unknown;
  readonly skipped: boolean;
  readonly ttl: number | undefined;
  readonly tags: readonly string[];
}

/**
 * Calls loaders: bounded in time, and aware of what they are called inside of. Callbacks rather than promises: with
 * `AsyncLocalStorage` each promise on the way of every miss has its price.
 */
export class Loads {
  readonly scopes: LoadScopes;

  constructor(
    readonly timeouts: Timeouts,
    readonly counters: CacheCounters,
  ) {
    this.scopes = new LoadScopes(timeouts);
  }

  /**
   * Calls one of the two, once: `failed` with what the loader throws, or CacheTimeoutError when it takes longer than
   * `timeout` ms.
   */
  run(
    key: string,
    loader: Loader<unknown>,
    timeout: number,
    stale: unknown,
    done: (loaded: Loaded) => void,
    failed: (error: unknown) => void,
  ): void {
    new RunningLoad(this, key, timeout, stale, done, failed).start(loader);
  }
}

class RunningLoad implements Loaded, LoaderContext, ScopedLoad, Expiring {
  value: unknown;
  skipped = false;
  ttl: number | undefined;
  tags: readonly string[] = [];
  private limit: Timeout | undefined;
  over = false;
  private controller: AbortController | undefined;
  private timeoutError: CacheTimeoutError | undefined;

  constructor(
    private readonly loads: Loads,
    readonly key: string,
    private readonly timeout: number,
    readonly stale: unknown,
    private readonly done: (loaded: Loaded) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  start(loader: Loader<unknown>): void {
    const { loads } = this;
    loads.counters.loads += 1;
    this.limit = loads.timeouts.start(this.timeout, this);
    let returned: unknown;
    try {
      returned = loads.scopes.begin(this, loader);
      // To look at what it returned may throw as well.
      if (returned instanceof Promise || isThenable(returned)) return void returned.then(this.onValue, this.onError);
    } catch (error) {
      return this.onError(error);
    }
    this.onValue(returned);
  }

  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    if (this.timeoutError) this.controller.abort(this.timeoutError);
    return this.controller.signal;
  }

  // A loader may take these out of its context, and most never ask for them.
  get skip() {
    return (): void => {
      this.skipped = true;
    };
  }

  get setTtl() {
    return (ttl: Duration): void => {
      this.ttl = milliseconds('ttl', ttl, 0);
    };
  }

  get setTags() {
    return (tags: readonly string[]): void => {
      requireTags(tags);
      this.tags = [...this.tags, ...tags];
    };
  }

  expire(): void {
    const { key, timeout } = this;
    this.timeoutError = new CacheTimeoutError(`The loader of "${key}" took longer than loaderTimeout (${timeout} ms)`, [
      key,
    ]);
    this.controller?.abort(this.timeoutError);
    this.onError(this.timeoutError);
  }

  private readonly onValue = (value: unknown): void => {
    if (this.over) return;
    this.end();
    this.value = value;
    this.done(this);
  };

  private readonly onError = (error: unknown): void => {
    if (this.over) return;
    this.end();
    this.loads.counters.failedLoads += 1;
    this.failed(error);
  };

  private end(): void {
    this.over = true;
    this.loads.scopes.ended();
    this.limit?.leave();
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
