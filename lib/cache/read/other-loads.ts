import { LoadLease } from '../load/load-lease.js';
import type { LoadLeases } from '../load/load-leases.js';
import type { LoadWaiters } from '../load/load-waiters.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { BatchParticipant } from './batch-participant.js';
import { beginningOf, isFresh, type FoundValue, type StoredValues } from './stored-values.js';

/**
 * How the load of another caller ended: with a value, or with the lease, so that this process loads; with a barrier;
 * because the wait ran out; or with stored data that cannot be read.
 */
export type OtherLoadEnd = FoundValue | LoadLease | 'barrier' | 'late' | 'unreadable';

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
    const stored = this.values.decode(key, data);
    if (!stored || !isFresh(stored)) return undefined;
    const found = await this.values.checkTags(key, stored, tags);
    if (!found || !isFresh(found) || !revive) return found && isFresh(found) ? found : undefined;
    const revived = await this.values.revive(key, revive, found.value);
    return revived && { ...found, revived };
  }
}
