import { CacheTimeoutError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { Duration } from '../../options/checks.js';
import { cacheOption, isThenable } from '../../options/option-checks.js';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import { lifetime, requireTags, type EntrySettings } from '../options/entry-settings.js';
import {
  type CacheCounters,
  loadsAreObserved,
  observeLoad,
  publishLoad,
  type ObservedLoad,
} from '../store/cache-stats.js';
import type { Loader, LoaderContext } from './cache-loader.js';
import type { LoadCommits, LoadResult } from './load-commits.js';
import type { LoadLease } from './load-lease.js';
import type { LoadScopes, ScopedLoad } from './load-scopes.js';

/**
 * Loads values: what a miss does once it has the load lease (the whole way stands in `read/read.ts`). Each method calls
 * `done` or `failed` once. `stale` becomes `context.stale` of the loader.
 *
 * Takes callbacks rather than promises, because where `AsyncLocalStorage` is in use each promise slows down each miss.
 */
export class Loads {
  constructor(
    readonly timeouts: Timeouts,
    readonly scopes: LoadScopes,
    readonly counters: CacheCounters,
    private readonly commits: LoadCommits,
  ) {}

  /** Keeps the lease while the loader runs, and stores what it returns. `storing`: as in `LoadCommits.store`. */
  underLease(
    lease: LoadLease,
    loader: Loader<unknown>,
    settings: EntrySettings,
    stale: unknown,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
    storing?: (result: LoadResult) => void,
  ): void {
    lease.startRenewal();
    const begunAt = performance.now();
    const run = new LoaderRun(
      this,
      lease.key,
      settings,
      stale,
      (loaded) => {
        lease.stopRenewal();
        this.commits.store(lease, settings, loaded, performance.now() - begunAt, done, failed, storing);
      },
      (error) => {
        lease.stopRenewal();
        lease.release();
        failed(error);
      },
    );
    run.start(loader);
  }

  /** Runs the loader and stores nothing: a write is under way, or the store is away. */
  unstored(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    stale: unknown,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    this.counters.unstoredLoads += 1;
    new LoaderRun(this, key, settings, stale, done, failed).start(loader);
  }
}

/** What a loader returned, and what it set in its context. */
export interface Loaded {
  readonly value: unknown;
  readonly skipped: boolean;
  /** In ms, if the loader set it. */
  readonly ttl: number | undefined;
  /** Without the prefix of their namespace. */
  readonly tags: readonly string[];
}

/**
 * One call of a loader, with its time limit; it is the loader's context, too. Calls `done` or `failed`, once: `failed`
 * with what the loader throws, or with CacheTimeoutError `loaderTimeout` ms after the loader was called.
 */
class LoaderRun implements Loaded, LoaderContext, ScopedLoad, Expiring {
  value: unknown;
  skipped = false;
  ttl: number | undefined;
  tags: readonly string[] = [];
  private limit: Timeout | undefined;
  over = false;
  private controller: AbortController | undefined;
  private timeoutError: CacheTimeoutError | undefined;
  private observed: ObservedLoad | undefined;

  constructor(
    private readonly loads: Loads,
    readonly key: string,
    private readonly settings: Pick<EntrySettings, 'loaderTimeout' | 'template'>,
    readonly stale: unknown,
    private readonly done: (loaded: Loaded) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  start(loader: Loader<unknown>): void {
    const { loads } = this;
    loads.counters.loads += 1;
    this.limit = loads.timeouts.start(this.settings.loaderTimeout, this);
    if (loadsAreObserved()) this.observed = observeLoad(this.key, this.settings.template);
    let returned: unknown;
    try {
      returned = loads.scopes.begin(this, loader);
      // Reading `then` of what it returned may throw as well.
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

  // Getters, so that a loader may destructure its context; most loaders use none of these functions.
  get skip() {
    return (): void => {
      this.skipped = true;
    };
  }

  get setTtl() {
    return (ttl: Duration): void => {
      this.ttl = lifetime(ttl, 'ttl', cacheOption, 0);
    };
  }

  get setTags() {
    return (tags: readonly string[]): void => {
      requireTags(tags);
      this.tags = [...this.tags, ...tags];
    };
  }

  expire(): void {
    const { key, settings } = this;
    const timeout = settings.loaderTimeout;
    this.timeoutError = new CacheTimeoutError(`The loader of "${key}" took longer than loaderTimeout (${timeout} ms)`, [
      key,
    ]);
    this.controller?.abort(this.timeoutError);
    this.onError(this.timeoutError);
  }

  private readonly onValue = (value: unknown): void => {
    if (this.over) return;
    this.end(undefined);
    this.value = value;
    this.done(this);
  };

  private readonly onError = (error: unknown): void => {
    if (this.over) return;
    this.end(error);
    this.loads.counters.failedLoads += 1;
    this.failed(error);
  };

  private end(error: unknown): void {
    this.over = true;
    if (cacheChannels.load.hasSubscribers) publishLoad(this.key, this.settings.template, this.observed, error);
    this.loads.scopes.ended();
    this.limit?.leave();
  }
}
