import type { CacheStore, CacheTracker } from '../../contracts/cache-store.js';
import { CacheConfigError } from '../../errors/cache-errors.js';
import type { Warnings } from '../../errors/limited-log.js';
import type { FirstLevel } from './first-level.js';
import type { LocalState } from '../invalidation/local-state.js';

/**
 * Drops from the first level each value that any client changes in the store.
 *
 * Also drops values that this process stores: their message looks like that of another writer, and one message may
 * stand for both.
 */
export class FirstLevelTracking implements CacheTracker {
  constructor(
    private readonly firstLevel: FirstLevel,
    private readonly local: LocalState,
    private readonly warnings: Warnings,
  ) {}

  /** @throws CacheConfigError when the store cannot */
  start(store: CacheStore): void {
    if (store.track) return store.track(this);
    throw new CacheConfigError(
      `Option "cache.l1.bus" is "tracking", which takes a single Redis or Valkey, not a Cluster or another store (this one is "${store.name}"); give 'pubsub'`,
    );
  }

  onChanged(key: string): void {
    this.local.forgetValue(key);
  }

  onAllChanged(): void {
    this.local.forgetMatching(() => true);
  }

  onTracked(): void {
    this.firstLevel.trust('tracking');
  }

  onUntracked(why?: Error): void {
    this.firstLevel.distrust('tracking');
    if (why) {
      this.warnings.warn(
        `Option "cache.l1.bus" is "tracking", and Redis refuses that (${why.message}), so that the first level stays empty; give 'pubsub', or Redis 6 and a user who may use CLIENT ID, CLIENT TRACKING and the channel __redis__:invalidate`,
      );
    }
  }
}
