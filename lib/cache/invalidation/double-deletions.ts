import type { Warnings } from '../../errors/limited-log.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import { nameOfKey, nameOfPrefix, type PrefixDeletion } from './deletion-names.js';
import type { Invalidations } from './invalidations.js';
import type { MatchingDeletions } from './matching-deletions.js';
import type { ScheduledDeletionsRunner } from './scheduled-deletions-runner.js';

export type DoubleDeletionTarget = { readonly keys: readonly string[] } | PrefixDeletion;

/** Deletes before and after a write, and again after a delay, for loaders that read from replicas that lag behind. */
export class DoubleDeletions {
  constructor(
    private readonly calls: StoreCalls,
    private readonly counters: CacheCounters,
    private readonly invalidations: Invalidations,
    private readonly matchingDeletions: MatchingDeletions,
    private readonly scheduled: ScheduledDeletionsRunner,
    private readonly warnings: Warnings,
  ) {}

  async run<T>(target: DoubleDeletionTarget, write: () => Promise<T>, delay: number, failOpen: boolean): Promise<T> {
    await this.delete(target, failOpen);
    // In case this process dies before the write ends. The schedule after the write replaces this one.
    await this.schedule(target, delay, failOpen);
    try {
      return await write();
    } finally {
      await this.delete(target, true);
      await this.schedule(target, delay, true);
    }
  }

  private async schedule(target: DoubleDeletionTarget, delay: number, failOpen: boolean): Promise<void> {
    const { calls, scheduled } = this;
    const names = 'keys' in target ? target.keys.map(nameOfKey) : [nameOfPrefix(target)];
    try {
      await calls.run('schedule of the second deletion', '', () => scheduled.schedule(names, delay));
    } catch (error) {
      this.counters.redisErrors += 1;
      if (!failOpen) throw error;
      const shown = 'keys' in target ? `"${target.keys.join('", "')}"` : `prefix "${target.prefix}"`;
      this.warnings.warn(
        `Redis did not schedule the second deletion of ${shown}, which this process carries out while it lives: ${String(error)}`,
      );
      setTimeout(() => void this.delete(target, true), delay).unref();
    }
  }

  private async delete(target: DoubleDeletionTarget, failOpen: boolean): Promise<void> {
    if ('keys' in target) await this.invalidations.deleteEach(target.keys, (key) => ({ key }), failOpen);
    else await this.matchingDeletions.delete({ match: { prefix: target.prefix }, batch: target.batch }, failOpen);
  }
}
