import type { TagVersion } from '../backends/cache-store.js';
import type { CacheCounters } from './cache-stats.js';
import type { Complaints } from './complaints.js';
import type { Envelopes } from './envelope.js';
import type { FirstLevel } from './first-level.js';
import type { Flights } from './flights.js';
import type { ForgottenTags } from './forgotten-tags.js';
import type { LoadWaiters } from './load-waiters.js';
import type { Loads } from './loads.js';
import type { Rests } from './rests.js';
import type { ScheduledDeletionsRunner } from './scheduled-deletions-runner.js';
import type { StoreCalls } from './store-calls.js';
import type { Turns } from './turns.js';
import type { Unconfirmed } from './unconfirmed.js';
import type { UnkeptClasses } from './unkept-classes.js';

/** What the parts of one cache share. */
export interface CacheCore {
  readonly calls: StoreCalls;
  readonly envelopes: Envelopes;
  readonly firstLevel: FirstLevel | undefined;
  readonly flights: Flights;
  readonly waiters: LoadWaiters;
  readonly rests: Rests;
  readonly loads: Loads;
  readonly turns: Turns;
  readonly unconfirmed: Unconfirmed;
  readonly scheduled: ScheduledDeletionsRunner;
  readonly counters: CacheCounters;
  readonly complaints: Complaints;
  readonly unkeptClasses: UnkeptClasses;
  /** Whether every invalidation of another process is heard of. */
  readonly hears: boolean;
  readonly forgottenTags: ForgottenTags;
  /** A token that no other load and no other write has. */
  nextToken(): string;
  beginTags(key: string, tags: readonly string[], memory: number): Promise<readonly TagVersion[]>;
}
