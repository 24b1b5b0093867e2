import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredData, TagVersion } from '../../contracts/cache-store.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { textOf, type Warnings } from '../../errors/limited-log.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import type { StepOrder } from '../invalidation/step-order.js';
import { type EntrySettings, staleTtlOf, timeToLive, tagMemory } from '../options/entry-settings.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import { type Entry, type Envelopes, emptyStamp, type TagStamp } from '../values/envelope.js';
import type { UnkeptClasses } from '../values/unkept-classes.js';
import type { LoadLease } from './load-lease.js';
import type { Loaded } from './loader-runner.js';

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

/** Removes what a load has found out of date, where the store alone does not. */
export interface OutdatedValues {
  /** Drops the value from the first level. */
  forget(key: string): void;
  /** Deletes the value once the store answers again. */
  deleteLater(key: string): void;
}

/** Stores loaded values under their leases: the last step of a miss (the whole way stands in `read/read.ts`). */
export class LoadCommits {
  /** How many commits are under way whose callers have their answer. */
  private underWay = 0;
  private onNone: (() => void) | undefined;

  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly envelopes: Envelopes,
    private readonly tagStamps: TagStamps,
    private readonly unkeptClasses: UnkeptClasses,
    private readonly counters: CacheCounters,
    private readonly warnings: Warnings,
    /** Whether there is a first level for stored entries. */
    private readonly hasFirstLevel: boolean,
    private readonly outdated: OutdatedValues,
  ) {}

  /**
   * Stores the value unless its lease was taken away. Calls `done` or `failed`, once: `failed` with CacheBackendError
   * when Redis fails and `onRedisError` is 'throw'. `loadTime`: ms that the loader took. `storing` is called before
   * `done`, if at all: the store has been asked to keep the value, and later changes and reads of the key wait for its
   * answer.
   */
  store(
    lease: LoadLease,
    settings: EntrySettings,
    loaded: Loaded,
    loadTime: number,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
    storing?: (result: LoadResult) => void,
  ): void {
    const { value, tags } = loaded;
    const ttl = loaded.skipped ? 0 : timeToLive(value, settings, loaded.ttl);
    if (ttl === 0) return this.endWithout(lease, loaded, done);
    const giveUp = (error: unknown) => {
      const isBackendError = error instanceof CacheBackendError;
      if (!isBackendError) {
        this.endWithout(lease, loaded, done);
        this.warnings.warn(`The loaded value of "${lease.key}" cannot be stored: ${textOf(error)}`, 'unstorable');
        return;
      }
      this.counters.redisErrors += 1;
      lease.release();
      if (settings.failOpen) done({ value, tags });
      else failed(error);
    };
    try {
      this.unkeptClasses.look(lease.key, value, settings.revive);
      const sealed = this.seal(lease, settings, loaded, ttl, loadTime);
      const commit = (data: StoredData | undefined) =>
        this.commit(lease, settings, loaded, data, ttl, done, giveUp, storing);
      if (!(sealed instanceof Promise)) return commit(sealed);
      sealed.then(commit, giveUp);
    } catch (error) {
      giveUp(error);
    }
  }

  private commit(
    lease: LoadLease,
    settings: EntrySettings,
    loaded: Loaded,
    data: StoredData | undefined,
    ttl: number,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
    storing: ((result: LoadResult) => void) | undefined,
  ): void {
    const { calls } = this;
    const { key, token } = lease;
    const { value, tags } = loaded;
    if (data === undefined) {
      this.refused(key, settings);
      return this.endWithout(lease, loaded, done);
    }
    const request = { key, token, data, ttl: ttl + staleTtlOf(value, settings) };
    const kept = (): LoadResult => {
      const entry = this.hasFirstLevel ? this.envelopes.open(Buffer.from(data)) : undefined;
      return { value, tags, freshUntil: Date.now() + ttl, entry };
    };
    let isUnderWay = storing !== undefined;
    let result: LoadResult | undefined;
    const answered = (stored: boolean) => {
      if (isUnderWay) this.end(key);
      isUnderWay = false;
      if (stored) return done(result ?? kept());
      this.refused(key, settings);
      done({ value, tags });
    };
    const refused = (error: unknown) => {
      if (isUnderWay) this.end(key);
      isUnderWay = false;
      failed(error);
    };
    if (isUnderWay) this.begin(key);
    calls.send('storing', key, () => calls.store.commit(request), answered, refused);
    if (isUnderWay) storing?.((result = kept()));
  }

  /** From now on, changes and reads of the key wait for its commit. */
  private begin(key: string): void {
    this.stepOrder.enter(key);
    this.underWay += 1;
  }

  private end(key: string): void {
    this.stepOrder.leave(key);
    this.underWay -= 1;
    if (this.underWay === 0) this.onNone?.();
  }

  /** Resolves when the commits have ended whose callers have their answer; for those to come it does not wait. */
  async settled(): Promise<void> {
    if (this.underWay === 0) return;
    const none = new Promise<void>((resolve) => (this.onNone = resolve));
    await Promise.race([none, sleep(this.calls.options.commandTimeout, undefined, { ref: false })]);
  }

  /**
   * Ends the load without a value to store: the stored one, if there is one, is older than what the loader has said, so
   * it is deleted before the callers go on. A loader that wants to keep it returns `context.stale`.
   */
  private endWithout(lease: LoadLease, { value, tags }: Loaded, done: (result: LoadResult) => void): void {
    const { key } = lease;
    const ended = () => {
      this.outdated.forget(key);
      done({ value, tags });
    };
    this.outdated.forget(key);
    lease.releaseOutdated(ended, () => {
      this.outdated.deleteLater(key);
      ended();
    });
  }

  private refused(key: string, { template }: EntrySettings): void {
    this.counters.refusedCommits += 1;
    if (cacheChannels.commitRefused.hasSubscribers) cacheChannels.commitRefused.publish({ key, template });
  }

  /** The stored form of the value; `undefined` if a tag that the loader named was invalidated meanwhile. */
  private seal(
    lease: LoadLease,
    settings: EntrySettings,
    { value, tags: named }: Loaded,
    ttl: number,
    loadTime: number,
  ): StoredData | Promise<StoredData | undefined> {
    const { envelopes } = this;
    const { refreshAhead, staleTtl } = settings;
    const mark = {
      expiresAt: Date.now() + ttl,
      keptStale: staleTtlOf(value, settings) > 0,
      loadTime: refreshAhead && 'beta' in refreshAhead ? Math.round(loadTime) : undefined,
      tags: undefined,
    };
    if (settings.tags.length === 0 && named.length === 0) return envelopes.seal(value, mark);
    return this.tagStamps
      .ofLoad(lease, settings, named, ttl + staleTtl)
      .then((tags) => tags && envelopes.seal(value, { ...mark, tags }));
  }
}

/** Reads the versions of tags, which are stored with a value as its stamp. */
export class TagStamps {
  constructor(
    private readonly calls: StoreCalls,
    private readonly invalidatedTags: InvalidatedTags,
  ) {}

  /** The versions of the tags, kept by Redis for `memory` ms from now. @throws CacheBackendError when Redis fails */
  begin(key: string, tags: readonly string[], memory: number): Promise<readonly TagVersion[]> {
    return this.calls.run('read of the tags', key, () => this.calls.store.beginTags(tags, memory));
  }

  /** The stamp for a value that is stored now and kept for `kept` ms. @throws CacheBackendError when Redis fails */
  async ofWrite(key: string, tags: readonly string[], kept: number): Promise<TagStamp> {
    return stampOf(tags, await this.begin(key, tags, tagMemory(kept)));
  }

  /**
   * The stamp for a value that was loaded under the lease and is kept for `kept` ms; `undefined` if a tag that the
   * loader named was invalidated since the lease was granted.
   *
   * @throws CacheBackendError when Redis fails
   */
  async ofLoad(
    { key, granted }: LoadLease,
    { tags, tagPrefix }: EntrySettings,
    named: readonly string[],
    kept: number,
  ): Promise<TagStamp | undefined> {
    const stamp = stampOf(tags, granted.tagVersions);
    const further = named.map((tag) => tagPrefix + tag).filter((tag) => !Object.hasOwn(stamp, tag));
    if (further.length === 0) return stamp;
    const { calls } = this;
    const [versions, invalidatedAt] = await Promise.all([
      this.begin(key, further, tagMemory(kept)),
      calls.run('read of the tags', key, () => calls.store.lastTagInvalidation()),
    ]);
    // A tag that begins now may have been invalidated since the lease, and then evicted by Redis.
    const mayBeEvicted =
      invalidatedAt === null ? this.invalidatedTags.count !== granted.invalidatedTags : invalidatedAt > granted.at;
    for (const [index, tag] of further.entries()) {
      const { version, begun } = versions[index] as TagVersion;
      if (version > granted.at && (!begun || mayBeEvicted)) return undefined;
      stamp[tag] = version;
    }
    return stamp;
  }
}

function stampOf(tags: readonly string[], versions: readonly TagVersion[]): Record<string, number> {
  const stamp = emptyStamp();
  for (const [index, tag] of tags.entries()) stamp[tag] = versions[index]?.version ?? 0;
  return stamp;
}
