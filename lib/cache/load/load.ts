import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredData } from '../../contracts/cache-store.js';
import { CacheBackendError, CacheTimeoutError } from '../../errors/cache-errors.js';
import { textOf, type Warnings } from '../../errors/limited-log.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { Duration } from '../../options/checks.js';
import { cacheOption, isThenable } from '../../options/option-checks.js';
import type { Expiring, Timeout } from '../../timing/clock.js';
import type { StepOrder } from '../invalidation/step-order.js';
import {
  type EntrySettings,
  lifetime,
  ownTtl,
  requireTags,
  staleTtlOf,
  timeToLive,
} from '../options/entry-settings.js';
import { type CacheCounters, observeLoad, type ObservedLoad, publishLoad } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Entry, Envelopes } from '../values/envelope.js';
import type { Loader, LoaderContext } from './cache-loader.js';
import type { LoadLease } from './load-lease.js';
import type { LoadScopes, ScopedLoad } from './load-scopes.js';
import type { TagStamps } from './tag-stamps.js';

/** What the loads of one cache use. */
interface LoadContext {
  readonly calls: StoreCalls;
  readonly stepOrder: StepOrder;
  readonly envelopes: Envelopes;
  readonly tagStamps: TagStamps;
  readonly scopes: LoadScopes;
  readonly counters: CacheCounters;
  readonly warnings: Warnings;
  /** Whether there is a first level for stored entries. */
  readonly hasFirstLevel: boolean;
  readonly outdated: OutdatedValues;
}

/** Removes what a load has found out of date, where the store alone does not. */
interface OutdatedValues {
  /** Drops the value from the first level. */
  forget(key: string): void;
  /** Deletes the value once the store answers again. */
  deleteLater(key: string): void;
}

/** The loads of one cache. */
export class Loads {
  /** How many commits are under way whose callers have their answer. */
  storing = 0;
  /** Called when there are none any more. */
  onNone: (() => void) | undefined = undefined;

  constructor(readonly context: LoadContext) {}

  /** Resolves when the commits have ended whose callers have their answer; for those to come it does not wait. */
  async settled(): Promise<void> {
    if (this.storing === 0) return;
    const none = new Promise<void>((resolve) => (this.onNone = resolve));
    await Promise.race([none, sleep(this.context.calls.options.commandTimeout, undefined, { ref: false })]);
  }
}

/** A loaded value, and how it was stored. */
export interface LoadResult {
  readonly value: unknown;
  /** The tags that the loader named, without the prefix of their namespace. */
  readonly tags: readonly string[];
  /** The stored entry, for the first level; absent when there is none. */
  readonly entry?: Entry | undefined;
  /** When its `ttl` ends, in ms of the wall clock; absent if it was not stored. */
  readonly freshUntil?: number;
}

/** Who gets what was loaded: `done` or `failed` is called once, but see `answersFirst`. */
export interface LoadCaller {
  /** Whether `done` is called twice: at once when the store was asked to keep the value, and when it has answered. */
  readonly answersFirst?: boolean;
  /** `isStoring`: the store has not answered yet. Later changes and reads of the key wait for that. */
  done(result: LoadResult, isStoring: boolean): void;
  /**
   * With what the loader throws; with CacheTimeoutError `loaderTimeout` ms after its call; or with CacheBackendError
   * when Redis fails and `onRedisError` is 'throw'.
   */
  failed(error: unknown): void;
}

/**
 * One load: calls the loader, with its time limit, and stores what it returns under the lease. Without a lease it
 * stores nothing: a write is under way, or the store is away. It is the loader's context, too.
 *
 * Takes callbacks rather than promises, because where `AsyncLocalStorage` is in use each promise slows down each miss.
 */
export class Load implements LoadResult, LoaderContext, ScopedLoad, Expiring {
  value: unknown;
  tags: readonly string[] = [];
  over = false;
  private skipped = false;
  /** In ms, if the loader set it. */
  private ttl: number | undefined = undefined;
  private begunAt = 0;
  /** Whether the callers have the value, and the store has not answered yet. */
  private isStoring = false;
  private limit: Timeout | undefined = undefined;
  private controller: AbortController | undefined = undefined;
  private timeoutError: CacheTimeoutError | undefined = undefined;
  private observed: ObservedLoad | undefined = undefined;

  constructor(
    private readonly loads: Loads,
    readonly key: string,
    private readonly settings: EntrySettings,
    readonly stale: unknown,
    private readonly caller: LoadCaller,
    private readonly lease: LoadLease | undefined,
  ) {}

  start(loader: Loader<unknown>): void {
    const { key, lease, settings } = this;
    const { calls, counters, scopes } = this.loads.context;
    if (lease) lease.startRenewal();
    else counters.unstoredLoads += 1;
    counters.loads += 1;
    this.begunAt = performance.now();
    this.limit = calls.timeouts.start(settings.loaderTimeout, this);
    const { load, loadStarted } = cacheChannels;
    if (load.hasSubscribers || loadStarted.hasSubscribers) this.observed = observeLoad(key, settings.template);
    let returned: unknown;
    try {
      returned = scopes.begin(this, loader);
      // Reading `then` of what it returned may throw as well.
      if (returned instanceof Promise || isThenable(returned))
        return void returned.then(
          (value) => this.onValue(value),
          (error: unknown) => this.onError(error),
        );
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

  private onValue(value: unknown): void {
    if (this.over) return;
    this.end(undefined);
    this.value = value;
    if (this.lease) this.store(this.lease);
    else this.caller.done({ value, tags: this.tags }, false);
  }

  private onError(error: unknown): void {
    if (this.over) return;
    this.end(error);
    this.loads.context.counters.failedLoads += 1;
    this.lease?.release();
    this.caller.failed(error);
  }

  private end(error: unknown): void {
    this.over = true;
    if (cacheChannels.load.hasSubscribers) publishLoad(this.key, this.settings.template, this.observed, error);
    this.loads.context.scopes.ended();
    this.limit?.leave();
    this.lease?.stopRenewal();
  }

  /** Stores the value unless its lease was taken away. */
  private store(lease: LoadLease): void {
    const { key, settings, value, tags } = this;
    const { envelopes, tagStamps } = this.loads.context;
    const { refreshAhead, staleTtl } = settings;
    const ttl = this.skipped ? 0 : timeToLive(value, settings, this.ttl);
    const kept = ttl + (staleTtl > 0 ? staleTtlOf(value, settings) : 0);
    if (ttl === 0) return this.endWithout(lease);
    try {
      const content = envelopes.serialize(key, value, settings.revive);
      const mark = {
        expiresAt: Date.now() + ttl,
        keptStale: kept > ttl,
        loadTime: refreshAhead && 'beta' in refreshAhead ? Math.round(performance.now() - this.begunAt) : undefined,
        ttl: refreshAhead && 'part' in refreshAhead ? ownTtl(ttl, settings) : undefined,
        tags: undefined,
      };
      const sealed =
        settings.tags.length === 0 && tags.length === 0
          ? envelopes.seal(content, mark)
          : tagStamps
              .ofLoad(lease, settings, tags, ttl + staleTtl)
              .then((stamp) => stamp && envelopes.seal(content, { ...mark, tags: stamp }));
      if (!(sealed instanceof Promise)) return this.commit(lease, sealed, ttl, kept);
      sealed.then(
        (data) => this.commit(lease, data, ttl, kept),
        (error) => this.giveUp(lease, error),
      );
    } catch (error) {
      this.giveUp(lease, error);
    }
  }

  /** `data`: absent if a tag that the loader named was invalidated meanwhile. */
  private commit(lease: LoadLease, data: StoredData | undefined, ttl: number, kept: number): void {
    const { key, value, tags, caller, loads } = this;
    const { calls, envelopes, hasFirstLevel, stepOrder } = loads.context;
    if (data === undefined) {
      this.noteRefusal();
      return this.endWithout(lease);
    }
    const request = { key, token: lease.token, data, ttl: kept };
    const entry = hasFirstLevel ? envelopes.open(Buffer.from(data)) : undefined;
    const result = { value, tags, freshUntil: Date.now() + ttl, entry };
    const answered = (stored: boolean) => {
      if (this.isStoring) this.endStoring();
      if (stored) return caller.done(result, false);
      this.noteRefusal();
      caller.done({ value, tags }, false);
    };
    const failed = (error: unknown) => {
      if (this.isStoring) this.endStoring();
      this.giveUp(lease, error);
    };
    this.isStoring = caller.answersFirst === true;
    if (this.isStoring) {
      // From now on, changes and reads of the key wait for the answer.
      stepOrder.enter(key);
      loads.storing += 1;
    }
    calls.send('storing', key, () => calls.store.commit(request), answered, failed);
    // Unless the call has failed at once.
    if (this.isStoring) caller.done(result, true);
  }

  private endStoring(): void {
    const { key, loads } = this;
    this.isStoring = false;
    loads.context.stepOrder.leave(key);
    loads.storing -= 1;
    if (loads.storing === 0) loads.onNone?.();
  }

  private giveUp(lease: LoadLease, error: unknown): void {
    const { key, settings, value, tags, caller } = this;
    const { counters, warnings } = this.loads.context;
    if (!(error instanceof CacheBackendError)) {
      this.endWithout(lease);
      warnings.warn(`The loaded value of "${key}" cannot be stored: ${textOf(error)}`, 'unstorable');
      return;
    }
    counters.redisErrors += 1;
    lease.release();
    if (settings.failOpen) caller.done({ value, tags }, false);
    else caller.failed(error);
  }

  /**
   * Ends the load without a value to store: the stored one, if there is one, is older than what the loader has said, so
   * it is deleted before the callers go on. A loader that wants to keep it returns `context.stale`.
   */
  private endWithout(lease: LoadLease): void {
    const { key, value, tags, caller } = this;
    const { outdated } = this.loads.context;
    const ended = () => {
      outdated.forget(key);
      caller.done({ value, tags }, false);
    };
    outdated.forget(key);
    lease.releaseOutdated(ended, () => {
      outdated.deleteLater(key);
      ended();
    });
  }

  private noteRefusal(): void {
    const { key, settings } = this;
    this.loads.context.counters.refusedCommits += 1;
    const { commitRefused } = cacheChannels;
    if (commitRefused.hasSubscribers) commitRefused.publish({ key, template: settings.template });
  }
}
