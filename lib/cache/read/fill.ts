/*
 * How a read gets a value that the store does not have, or has no longer fresh: `Fill` for a caller who waits,
 * `Refresher` in the background while the value is still served. Both load under a load lease (`load/load-lease.ts`),
 * and store under it (`load/load.ts`); `OtherLoads` waits where another caller has it.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { CacheBackendError, CacheConfigError, CacheTimeoutError } from '../../errors/cache-errors.js';
import { textOf, type Warnings } from '../../errors/limited-log.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import type { Loader } from '../load/cache-loader.js';
import { Load, type LoadCaller, type LoadResult, type Loads } from '../load/load.js';
import { LoadLease, type LeaseOutcome, type LoadLeases } from '../load/load-lease.js';
import type { LoadWaiters } from '../load/load-scopes.js';
import type { CacheSettings } from '../options/cache-options.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { Envelopes, TagStamp } from '../values/envelope.js';
import type { FirstLevel } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import type { Read } from './read.js';
import { beginningOf, callerValue, isFresh, type FoundValue, type StoredValues } from './stored-values.js';

/** What the reads of one cache use to load values. */
export interface FillContext {
  readonly leases: LoadLeases;
  readonly loads: Loads;
  readonly otherLoads: OtherLoads;
  readonly resting: RestingKeys;
  readonly counters: CacheCounters;
  readonly warnings: Warnings;
}

/** Fills a miss: loads the value, or waits for another load of it. */
export class Fill implements LoadCaller {
  /** Not where the callers want to know what becomes of the value. */
  readonly answersFirst: boolean;
  private soft: NodeJS.Timeout | undefined = undefined;

  constructor(
    private readonly read: Read,
    /** Served if the load fails or takes longer than `softTimeout`. */
    private readonly stale: FoundValue | undefined,
  ) {
    const { settings, participant } = read;
    this.answersFirst = !settings.strong && settings.failOpen && !participant?.storesFirst;
  }

  /** `present`: stored data that must not be served. `outcome`: that of the lease, if the read has asked for it. */
  start(present: Buffer | undefined, outcome?: LeaseOutcome): void {
    const { context, key, settings } = this.read;
    const { bloom, template } = settings;
    context.counters.misses += 1;
    if (cacheChannels.miss.hasSubscribers) cacheChannels.miss.publish({ key, template });
    if (outcome) return this.goOn(outcome, present);
    if (!bloom) return this.requestLease(present);
    const asked = bloom.filter.mayHave(bloom.id).then((mayHave) => {
      if (mayHave) return this.requestLease(present);
      context.counters.absentByFilter += 1;
      this.read.land(null);
    });
    this.read.follow(asked);
  }

  /** Loads without storing: a write is under way, or the store is down. */
  loadUnstored(): void {
    this.load(undefined);
  }

  doWithoutStore(error: CacheBackendError): void {
    const { context, settings } = this.read;
    context.counters.redisErrors += 1;
    if (settings.failOpen) this.loadUnstored();
    else this.read.fail(error);
  }

  private goOn(outcome: LeaseOutcome, present: Buffer | undefined): void {
    if (outcome instanceof LoadLease) this.load(outcome);
    else if (outcome.status === 'barrier') this.loadUnstored();
    else this.read.follow(this.awaitOther(present));
  }

  private requestLease(present: Buffer | undefined): void {
    const { context, key, settings } = this.read;
    const answered = (outcome: LeaseOutcome) => {
      try {
        this.goOn(outcome, present);
      } catch (error) {
        this.read.fail(error);
      }
    };
    const failed = (error: CacheBackendError) => this.doWithoutStore(error);
    const wish = { replaces: present && beginningOf(present), waits: false };
    context.leases.request(key, settings, wish, answered, failed);
  }

  private load(lease: LoadLease | undefined): void {
    const { read, stale } = this;
    const { context, key, loader, settings } = read;
    const { softTimeout } = settings;
    if (lease && stale && softTimeout > 0) this.soft = setTimeout(() => this.endEarly(stale), softTimeout);
    const load = new Load(context.loads, key, settings, stale && callerValue(stale), this, lease);
    read.caller.runInAsyncScope(() => load.start(loader));
  }

  done(result: LoadResult, isStoring: boolean): void {
    const { read } = this;
    const { tags, tagPrefix } = read.settings;
    if (read.isStoring) return read.stored(result);
    clearTimeout(this.soft);
    try {
      // Those that its loader named.
      if (result.tags.length > 0) read.tags = [...tags, ...result.tags.map((tag) => tagPrefix + tag)];
      read.landLoaded(result, isStoring);
    } catch (error) {
      read.fail(error);
    }
  }

  failed(error: unknown): void {
    const { read, stale } = this;
    const { context, key, settings } = read;
    clearTimeout(this.soft);
    if (stale) context.resting.begin(key, settings.restAfterError);
    if (read.endedEarly) {
      context.warnings.warn(`The loader of "${key}" failed in the background: ${textOf(error)}`, 'background');
    } else if (stale && settings.staleIfError) read.serveStale(stale);
    else read.fail(error);
  }

  /** Ends the read with the stale value; the load goes on, and its value is stored. */
  private endEarly(stale: FoundValue): void {
    this.read.endedEarly = true;
    this.read.serveStale(stale);
  }

  /** Waits for another caller that loads or has loaded. */
  private async awaitOther(present: Buffer | undefined): Promise<void> {
    const { read, stale } = this;
    const { context, key, settings, participant } = read;
    const wait = stale ? Math.min(settings.wait, settings.softTimeout) : settings.wait;
    let end: OtherLoadEnd;
    try {
      end = await context.otherLoads.end(key, settings, present, wait, participant);
    } catch (error) {
      if (!(error instanceof CacheBackendError)) throw error;
      return this.doWithoutStore(error);
    }
    if (end instanceof LoadLease) return this.load(end);
    if (end === 'barrier') return this.loadUnstored();
    if (end === 'late') return this.giveUpWaiting();
    if (end !== 'unreadable') return read.landFound(end, 'hit');
    context.warnings.warn(
      `What Redis has under "${key}" is not a value of the cache, or the replica that is read does not have it yet`,
    );
    this.loadUnstored();
  }

  private giveUpWaiting(): void {
    const { read, stale } = this;
    const { key, settings } = read;
    if (stale) return read.serveStale(stale);
    if (settings.onTimeout !== 'throw') return this.loadUnstored();
    const message = `"${key}" was still being loaded by another call after lock.wait (${settings.wait} ms)`;
    throw new CacheTimeoutError(message, [key]);
  }
}

/**
 * How the load of another caller ended: with a value, or with the lease, so that this process loads; with a barrier;
 * because the wait ran out; or with stored data that cannot be read.
 */
type OtherLoadEnd = FoundValue | LoadLease | 'barrier' | 'late' | 'unreadable';

/**
 * How often in a row the store may report a value that then cannot be read, because it expires, a replica lags behind,
 * or it is not a value of the cache.
 */
const MOST_VAIN_READS = 3;

/** Waits for loads of other callers, mostly in other processes. */
export class OtherLoads {
  constructor(
    private readonly leases: LoadLeases,
    private readonly waiters: LoadWaiters,
    private readonly values: StoredValues,
    private readonly counters: CacheCounters,
  ) {}

  /**
   * Waits for at most `wait` ms. `present`: the stored value that the load replaces.
   * @throws CacheBackendError when Redis fails
   */
  async end(
    key: string,
    settings: EntrySettings,
    present: Buffer | undefined,
    wait: number,
    participant: BatchParticipant | undefined,
  ): Promise<OtherLoadEnd> {
    const deadline = performance.now() + wait;
    const message = this.waiters.expect(key);
    try {
      let vainReads = 0;
      for (let replaces = present && beginningOf(present); ;) {
        // Asks again although the lease was taken: its message may have come before this process listened.
        const outcome = await this.leases.take(key, settings, { replaces, waits: wait > 0 });
        if (outcome instanceof LoadLease) return outcome;
        if (outcome.status === 'barrier') return 'barrier';
        if (outcome.status === 'busy') {
          const left = deadline - performance.now();
          if (left <= 0) return 'late';
          this.counters.waits += 1;
          participant?.waits();
          await message.untilWoken(Math.min(left, outcome.remaining + 1));
          participant?.resumes();
        } else {
          if (vainReads >= MOST_VAIN_READS) return 'unreadable';
          if (vainReads > 0) await message.untilWoken(Infinity);
          vainReads += 1;
        }
        if (settings.forceFresh) continue;
        const data = await this.values.read(key);
        const found = await this.fresh(key, settings, data);
        if (found) return found;
        replaces = data === null ? undefined : beginningOf(data);
      }
    } finally {
      message.end();
    }
  }

  private async fresh(key: string, settings: EntrySettings, data: Buffer | null): Promise<FoundValue | undefined> {
    const { revive, tags } = settings;
    const stored = data === null ? undefined : this.values.decode(key, data);
    if (!stored || !isFresh(stored)) return undefined;
    const found = await this.values.checkTags(key, stored, tags);
    if (!found || !isFresh(found) || !revive) return found && isFresh(found) ? found : undefined;
    const revived = await this.values.revive(key, revive, found.value);
    return revived && { ...found, revived };
  }
}

/** Loads values in the background while they are still served: one load at a time for each key, over all processes. */
export class Refresher {
  private readonly running = new Set<string>();
  /** The context in which the application was built. */
  private readonly detached = AsyncLocalStorage.snapshot();

  constructor(
    private readonly leases: LoadLeases,
    private readonly loads: Loads,
    private readonly resting: RestingKeys,
    private readonly firstLevel: FirstLevel | undefined,
    private readonly envelopes: Envelopes,
    private readonly warnings: Warnings,
    /** Opens what a loader needs to find in its async context. */
    private readonly refreshContext: CacheSettings['refreshContext'],
  ) {}

  /**
   * Runs work that nobody waits for: outside of the async context of the call that found the value due, which may have
   * ended (its transaction, its request). Rejects as the work does, or if the application does not run it.
   */
  inBackground<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.detached(() => {
      const { refreshContext } = this;
      if (!refreshContext) return work();
      return new Promise<T>((resolve, reject) => {
        let runs = false;
        const run = () => {
          if (runs) return;
          runs = true;
          work().then(resolve, reject);
        };
        const neverRan = () => {
          if (!runs)
            reject(new CacheConfigError('Option "cache.refreshContext" did not call "run"; call it once', [key]));
        };
        Promise.resolve(refreshContext(run, key)).then(neverRan, reject);
      });
    });
  }

  refresh(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    current: FoundValue,
    participant?: BatchParticipant,
  ): void {
    if (this.running.has(key) || (settings.staleIfError && this.resting.has(key, current.entry?.tags))) return;
    this.running.add(key);
    participant?.refreshes();
    this.inBackground(key, () => this.load(key, loader, settings, current)).then(
      () => {
        this.running.delete(key);
        participant?.refreshed();
      },
      (error: unknown) => {
        this.running.delete(key);
        this.resting.begin(key, settings.restAfterError);
        participant?.refreshed();
        if (cacheChannels.refreshFailed.hasSubscribers) {
          cacheChannels.refreshFailed.publish({ key, template: settings.template, error });
        }
        this.warnings.warn(`The refresh of "${key}" failed: ${textOf(error)}`, 'refresh');
      },
    );
  }

  private async load(key: string, loader: Loader<unknown>, settings: EntrySettings, found: FoundValue): Promise<void> {
    const { data, entry } = found;
    const replaces = data ? beginningOf(data) : entry && this.envelopes.headOf(entry);
    const outcome = await this.leases.take(key, settings, { replaces, waits: false });
    if (outcome instanceof LoadLease) {
      await new Promise((resolve, reject) => {
        new Load(this.loads, key, settings, callerValue(found), { done: resolve, failed: reject }, outcome).start(
          loader,
        );
      });
    } else if (outcome.status !== 'hit') return;
    this.firstLevel?.delete(key);
  }
}

/**
 * The keys that rest after a failed load: while a key rests, its stale value is served without another load. An
 * invalidation of the key or of a tag of its value ends the rest.
 */
export class RestingKeys {
  private readonly rests = new Map<string, { readonly timer: NodeJS.Timeout; readonly since: number }>();

  constructor(private readonly invalidatedTags: InvalidatedTags) {}

  /** Lets the key rest for `rest` ms from now. */
  begin(key: string, rest: number): void {
    this.end(key);
    if (rest === 0) return;
    const timer = setTimeout(() => this.rests.delete(key), rest).unref();
    this.rests.set(key, { timer, since: this.invalidatedTags.count });
  }

  end(key: string): void {
    clearTimeout(this.rests.get(key)?.timer);
    this.rests.delete(key);
  }

  /** `tags`: those of the value that is served. */
  has(key: string, tags: TagStamp = {}): boolean {
    const rest = this.rests.get(key);
    if (!rest) return false;
    if (!this.invalidatedTags.anySince(Object.keys(tags), rest.since)) return true;
    this.end(key);
    return false;
  }
}
