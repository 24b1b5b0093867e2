import type { StoredData, TagVersion } from '../../contracts/cache-store.js';
import type { Expiring, Timeout } from '../../timing/timeouts.js';
import type { CacheCore } from '../cache-core.js';
import type { Loader } from './cache-loader.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { emptyStamp, type Entry, type TagStamp } from '../values/envelope.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Loaded } from './running-loads.js';

/** How much longer (ms) a tag is remembered than what bears it. */
export const TAG_MARGIN = 60_000;

/** What a load found. */
export interface LoadResult {
  readonly value: unknown;
  /** Where there is a first level, and the value was stored. */
  readonly entry?: Entry | undefined;
  /** In ms of the wall clock, where it was stored. */
  readonly freshUntil?: number;
}

/**
 * A load that has the lease of its key: keeps the lease while the loader runs, and then stores what it returned, unless
 * the lease was taken away by an invalidation, a write, or time.
 *
 * After Nishtala et al., "Scaling Memcache at Facebook" (2013), §3.2.1, with a token for each load.
 */
export class LeasedLoad implements Expiring {
  private renewal: Timeout | undefined;
  private over = false;
  /** The tags that the loader named. */
  named: readonly string[] = [];
  /** What `InvalidatedTags` had counted when the lease was there. */
  private readonly begun: number;

  constructor(
    private readonly core: CacheCore,
    private readonly key: string,
    private readonly token: string,
    private readonly settings: EntrySettings,
    /** When the lease began, by the clock of the store. */
    private readonly leasedAt: number,
    private readonly tagVersions: readonly TagVersion[],
  ) {
    this.begun = core.invalidatedTags.count;
  }

  /**
   * Calls one of the two, once: `failed` with what the loader throws, or CacheBackendError unless the settings go on
   * without Redis.
   */
  run(
    loader: Loader<unknown>,
    stale: unknown,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    this.startRenewal();
    const begunAt = performance.now();
    this.core.loads.run(
      this.key,
      loader,
      this.settings.loaderTimeout,
      stale,
      (loaded) => {
        this.stopRenewal();
        this.named = loaded.tags;
        this.store(loaded, performance.now() - begunAt, done, failed);
      },
      (error) => {
        this.stopRenewal();
        releaseLease(this.core, this.key, this.token);
        failed(error);
      },
    );
  }

  /** The lease is due to be renewed. */
  expire(): void {
    if (this.over) return;
    const { calls } = this.core;
    const request = { key: this.key, token: this.token, lease: this.settings.lease };
    calls.send(
      'renewal of the lease',
      this.key,
      () => calls.store.renew(request),
      (renewed) => {
        if (renewed) this.startRenewal();
      },
      () => this.startRenewal(),
    );
  }

  private startRenewal(): void {
    if (this.over || !this.settings.renew) return;
    this.renewal = this.core.calls.timeouts.start(this.settings.lease / 3, this);
  }

  private stopRenewal(): void {
    this.over = true;
    this.renewal?.leave();
  }

  private store(
    loaded: Loaded,
    loadTime: number,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    const { core, key, settings } = this;
    const ttl = loaded.skipped ? 0 : timeToLive(loaded, settings);
    const unstored = { value: loaded.value };
    if (ttl === 0) {
      releaseLease(core, key, this.token);
      return done(unstored);
    }
    const giveUp = (error: unknown) => {
      if (error instanceof CacheBackendError) {
        core.counters.redisErrors += 1;
      } else core.warnings.warn(`What was loaded for "${key}" cannot be stored: ${String(error)}`);
      releaseLease(core, key, this.token);
      if (error instanceof CacheBackendError && !settings.failOpen) failed(error);
      else done(unstored);
    };
    try {
      core.unkeptClasses.look(key, loaded.value, settings.revive);
      const sealed = this.seal(loaded, ttl, loadTime);
      if (!(sealed instanceof Promise)) return this.commit(sealed, loaded.value, ttl, done, giveUp);
      sealed.then((data) => this.commit(data, loaded.value, ttl, done, giveUp), giveUp);
    } catch (error) {
      giveUp(error);
    }
  }

  private commit(
    data: StoredData | undefined,
    value: unknown,
    ttl: number,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    const { core, key, token } = this;
    if (data === undefined) {
      releaseLease(core, key, token);
      return done({ value });
    }
    const { store } = core.calls;
    const request = { key, token, data, ttl: ttl + staleTtlOf(value, this.settings) };
    core.calls.send(
      'storing',
      key,
      () => store.commit(request),
      (stored) => {
        if (stored)
          return done({
            value,
            freshUntil: Date.now() + ttl,
            entry: core.firstLevel && core.envelopes.open(Buffer.from(data)),
          });
        core.counters.refusedCommits += 1;
        done({ value });
      },
      failed,
    );
  }

  /** Resolves to `undefined` where a tag that the loader named was invalidated since it began. */
  private seal(loaded: Loaded, ttl: number, loadTime: number): StoredData | Promise<StoredData | undefined> {
    const { settings } = this;
    const { refreshAhead } = settings;
    const mark = {
      expiresAt: Date.now() + ttl,
      keptStale: staleTtlOf(loaded.value, settings) > 0,
      loadTime: refreshAhead && 'beta' in refreshAhead ? Math.round(loadTime) : undefined,
      tags: undefined,
    };
    const { envelopes } = this.core;
    if (settings.tags.length === 0 && loaded.tags.length === 0) return envelopes.seal(loaded.value, mark);
    return this.stamp(loaded.tags, ttl).then((tags) => tags && envelopes.seal(loaded.value, { ...mark, tags }));
  }

  /** `undefined` where a tag that the loader named was invalidated since it began. */
  private async stamp(named: readonly string[], ttl: number): Promise<TagStamp | undefined> {
    const stamp = emptyStamp();
    for (const [index, tag] of this.settings.tags.entries()) {
      stamp[tag] = this.tagVersions[index]?.version ?? 0;
    }
    const { tagPrefix } = this.settings;
    const further = named.map((tag) => tagPrefix + tag).filter((tag) => !Object.hasOwn(stamp, tag));
    if (further.length === 0) return stamp;
    const { calls } = this.core;
    const memory = ttl + this.settings.staleTtl + TAG_MARGIN;
    const [versions, invalidatedAt] = await Promise.all([
      this.core.beginTags(this.key, further, memory),
      calls.run('read of the tags', this.key, () => calls.store.lastTagInvalidation()),
    ]);
    // A tag that has only just begun may have been invalidated since the lease, and evicted.
    const some =
      invalidatedAt === null ? this.core.invalidatedTags.count !== this.begun : invalidatedAt > this.leasedAt;
    for (const [index, tag] of further.entries()) {
      const { version, begun } = versions[index] as TagVersion;
      if (version > this.leasedAt && (!begun || some)) {
        this.core.counters.refusedCommits += 1;
        return undefined;
      }
      stamp[tag] = version;
    }
    return stamp;
  }
}

/** Others need not wait any longer. */
export function releaseLease({ calls }: CacheCore, key: string, token: string): void {
  calls.send('release of the lease', key, () => calls.store.release({ key, token }), ignore, ignore);
}

/** How long tags that are named in the options must be remembered. */
export function tagMemory({ ttl, staleTtl }: EntrySettings): number {
  return ttl + staleTtl + TAG_MARGIN;
}

/** Milliseconds that the value is fresh; 0 does not store it. */
function timeToLive(loaded: Loaded, { ttl, nullTtl, jitter }: EntrySettings): number {
  let most = loaded.ttl ?? ttl;
  if (isAbsent(loaded.value)) most = Math.min(most, nullTtl);
  return jittered(most, jitter);
}

/** Milliseconds that the value is kept beyond its time: that there is nothing is not served then. */
export function staleTtlOf(value: unknown, { staleTtl }: Pick<EntrySettings, 'staleTtl'>): number {
  return isAbsent(value) ? 0 : staleTtl;
}

function isAbsent(value: unknown): boolean {
  return value === null || value === undefined;
}

/** Never longer: who gives a time may mean the longest. */
export function jittered(ttl: number, jitter: number): number {
  return Math.ceil(ttl * (1 - jitter * Math.random()));
}

function ignore(): void {}
