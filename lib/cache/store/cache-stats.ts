/** What a `CacheService` has done since it began. */
export interface CacheStats {
  /** Reads that found a fresh value in the first level. */
  firstLevelHits: number;
  /** Reads that found a fresh value in the store. */
  secondLevelHits: number;
  /** Reads that shared the read of another caller. */
  sharedReads: number;
  /** Reads that were answered with a value that is no longer fresh. */
  staleHits: number;
  /** Reads that found nothing they could use. */
  misses: number;
  /** Of those, the ones that a Bloom filter answered. */
  absentByFilter: number;
  /** Loaders that were called. */
  loads: number;
  /** Of those, the ones that failed or ran out of time. */
  failedLoads: number;
  /** Times that another process' load was waited for. */
  waits: number;
  /** Values that were not stored because the key was invalidated, or the lease lost, since their load began. */
  refusedCommits: number;
  /** Loads of which nothing was stored because a write was under way, or Redis was not there. */
  unstoredLoads: number;
  /** Keys, tags and prefixes that were invalidated. */
  invalidations: number;
  /** Of those, the ones that had to be repeated. */
  repeatedInvalidations: number;
  /** Invalidations that Redis has not confirmed yet. */
  unconfirmedInvalidations: number;
  /** Calls to Redis that failed or ran out of time. */
  redisErrors: number;
  /** Times that Redis was left alone. */
  breakerOpened: number;
  /**
   * Values in the first level, those that had to leave for lack of room, and times that it was emptied for lack of
   * messages.
   */
  firstLevelSize: number;
  firstLevelEvictions: number;
  firstLevelFlushes: number;
}

/** The counters of `CacheStats` that the cache itself counts up. */
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
