import { cacheChannels } from '../../events/cache-channels.js';
import type { DeleteMatchingRequest } from '../../contracts/cache-store.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { redisGlob } from '../../keys/redis-glob.js';
import { publishInvalidate } from '../store/cache-events.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { LocalState } from './local-state.js';
import { keyOfResource, type StepOrder } from './step-order.js';
import type { UnconfirmedDeletions } from './unconfirmed-deletions.js';

/** The characters that a store may escape in a key. */
const STORED_OTHERWISE = /\}|%(?=25|7D)/;

/** Deletes values by a prefix or a pattern of their keys; takes as many steps as the store has keys. */
export class MatchingDeletions {
  /** For each deletion under way, the keys that were stored since it began. */
  private readonly storedMeanwhile = new Set<Set<string>>();

  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly counters: CacheCounters,
    private readonly unconfirmed: UnconfirmedDeletions,
    private readonly local: LocalState,
  ) {}

  /**
   * Returns how many values were deleted. Gives up when the store does not answer; the deletion is then repeated in the
   * background.
   */
  async delete({ match, batch }: DeleteMatchingRequest, failOpen: boolean): Promise<number> {
    const { store } = this.calls;
    const stored = new Set<string>();
    const request = { match, batch, spares: (key: string) => stored.has(key) };
    const matches = matching(match);
    const shown = 'prefix' in match ? `prefix "${match.prefix}"` : `pattern "${match.pattern}"`;
    const what = `deletion by ${shown}`;
    this.counters.invalidations += 1;
    if (cacheChannels.invalidate.hasSubscribers) {
      publishInvalidate({ matching: 'prefix' in match ? match.prefix : match.pattern });
    }
    this.local.forgetMatching(matches);
    this.storedMeanwhile.add(stored);
    try {
      await this.stepOrder.afterMatching((resource) => matches(keyOfResource(resource)));
      return await this.calls.runLong(what, () => store.deleteMatching(request));
    } catch (error) {
      this.counters.redisErrors += 1;
      const send = () => store.deleteMatching(request);
      this.unconfirmed.add({ what, operation: what, name: `p${shown}`, matches, send });
      if (failOpen) return 0;
      throw new CacheBackendError(`Cache: ${what} failed and is repeated: ${String(error)}`, [], error);
    } finally {
      this.storedMeanwhile.delete(stored);
      this.local.forgetMatching(matches);
    }
  }

  /** Makes the deletions under way keep the value that is stored under the key from now on. */
  spare(key: string): void {
    for (const stored of this.storedMeanwhile) stored.add(key);
  }
}

/**
 * Whether a key is deleted. A key that the store escapes counts as deleted by every pattern, which may match its
 * escaped form.
 */
function matching(match: DeleteMatchingRequest['match']): (key: string) => boolean {
  if ('prefix' in match) return (key) => key.startsWith(match.prefix);
  const matches = redisGlob(match.pattern);
  return (key) => matches(key) || STORED_OTHERWISE.test(key);
}
