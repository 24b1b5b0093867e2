import {
  cacheChannels,
  type CacheHit,
  type CacheInvalidate,
  type CacheLoadStarted,
} from '../../events/cache-channels.js';
import type { EventChannel } from '../../events/event-channel.js';

/** The counters of a `CacheService` since the application began. */
export interface CacheStats {
  /** Reads that found a fresh value in the first level. */
  firstLevelHits: number;
  /** Reads that found a fresh value in the store. */
  secondLevelHits: number;
  /** Reads that shared the read of another caller. */
  sharedReads: number;
  /** Reads that returned a stale value. */
  staleHits: number;
  /** Reads that found no usable value. */
  misses: number;
  /** Misses that a Bloom filter answered with `null`. */
  absentByFilter: number;
  /** Calls of loaders. */
  loads: number;
  /** Loads that failed or took longer than `loaderTimeout`. */
  failedLoads: number;
  /** Waits for a load of another process. */
  waits: number;
  /** Loaded values that were not stored because the key was invalidated, or the load lease lost, during the load. */
  refusedCommits: number;
  /** Loads that stored nothing because a barrier stood or Redis failed. */
  unstoredLoads: number;
  /** Keys, tags and prefixes that were invalidated. */
  invalidations: number;
  /** Invalidations that had to be repeated. */
  repeatedInvalidations: number;
  /** Invalidations that Redis has not confirmed yet; they are repeated. */
  unconfirmedInvalidations: number;
  /** Calls to Redis that failed or took longer than `commandTimeout`. */
  redisErrors: number;
  /** Times that the circuit breaker opened. */
  breakerOpened: number;
  /** Values in the first level now. */
  firstLevelSize: number;
  /** Values that left the first level for lack of room. */
  firstLevelEvictions: number;
  /** Times that the first level was emptied because messages may have been lost. */
  firstLevelFlushes: number;
}

/** The counters of `CacheStats` that the cache itself increments. */
export class CacheCounters {
  firstLevelHits = 0;
  secondLevelHits = 0;
  sharedReads = 0;
  staleHits = 0;
  misses = 0;
  absentByFilter = 0;
  loads = 0;
  failedLoads = 0;
  waits = 0;
  refusedCommits = 0;
  unstoredLoads = 0;
  invalidations = 0;
  repeatedInvalidations = 0;
  redisErrors = 0;

  all(): Omit<CacheCounters, 'all'> {
    return { ...(this as Omit<CacheCounters, 'all'>) };
  }
}

/** A load that began while somebody listened. */
export interface ObservedLoad {
  readonly event: CacheLoadStarted;
  /** On the monotonic clock, in ms. */
  readonly begunAt: number;
}

export function publishHit(key: string, template: string | undefined, level: CacheHit['level'], stale = false): void {
  cacheChannels.hit.publish({ key, template, level, stale });
}

/** Publishes what a read by hand found in the store. */
export function publishRead(key: string, found: boolean): void {
  const { hit, miss } = cacheChannels;
  if (found && hit.hasSubscribers) publishHit(key, undefined, 'second');
  else if (!found && miss.hasSubscribers) miss.publish({ key, template: undefined });
}

/** Publishes that a load begins, and notes when. */
export function observeLoad(key: string, template: string | undefined): ObservedLoad {
  const event = { key, template };
  cacheChannels.loadStarted.publish(event);
  return { event, begunAt: performance.now() };
}

export function publishLoad(
  key: string,
  template: string | undefined,
  observed: ObservedLoad | undefined,
  error: unknown,
): void {
  const took = observed && performance.now() - observed.begunAt;
  cacheChannels.load.publish({ key, template, load: observed?.event, took, error });
}

export function publishInvalidate({ key, tag, matching }: Partial<CacheInvalidate>): void {
  cacheChannels.invalidate.publish({ key, tag, matching });
}

export function publishBreaker(channel: EventChannel<{ readonly opened: number }>, opened: number): void {
  if (channel.hasSubscribers) channel.publish({ opened });
}
