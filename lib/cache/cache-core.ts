import type { TagVersion } from '../contracts/cache-store.js';
import type { CacheCounters } from './store/cache-stats.js';
import type { WarningLimiter } from '../calls/warning-limiter.js';
import type { Envelopes } from './values/envelope.js';
import type { FirstLevel } from './first-level/first-level.js';
import type { Flights } from './read/flights.js';
import type { InvalidatedTags } from './invalidation/invalidated-tags.js';
import type { LoadWaiters } from './load/load-waiters.js';
import type { Loads } from './load/running-loads.js';
import type { Rests } from './load/resting-keys.js';
import type { ScheduledDeletionsRunner } from './invalidation/scheduled-deletions-runner.js';
import type { StoreCalls } from './store/store-calls.js';
import type { StepOrder } from './invalidation/step-order.js';
import type { UnconfirmedDeletions } from './invalidation/unconfirmed-deletions.js';
import type { UnkeptClasses } from './values/unkept-classes.js';

/** What the parts of one cache share. */
export interface CacheCore {
  readonly calls: StoreCalls;
  readonly envelopes: Envelopes;
  readonly firstLevel: FirstLevel | undefined;
  readonly flights: Flights;
  readonly waiters: LoadWaiters;
  readonly rests: Rests;
  readonly loads: Loads;
  readonly stepOrder: StepOrder;
  readonly unconfirmed: UnconfirmedDeletions;
  readonly scheduled: ScheduledDeletionsRunner;
  readonly counters: CacheCounters;
  readonly warnings: WarningLimiter;
  readonly unkeptClasses: UnkeptClasses;
  /** Whether every invalidation of another process is heard of. */
  readonly hears: boolean;
  readonly invalidatedTags: InvalidatedTags;
  /** A token that no other load and no other write has. */
  nextToken(): string;
  beginTags(key: string, tags: readonly string[], memory: number): Promise<readonly TagVersion[]>;
}
