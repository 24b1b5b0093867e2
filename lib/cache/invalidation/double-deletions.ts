import type { WarningLimiter } from '../../calls/warning-limiter.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Invalidations } from './invalidations.js';
import type { ScheduledDeletionsRunner } from './scheduled-deletions-runner.js';

/** Deletes before and after a write, and once more after a delay: for loaders that read from replicas that lag. */
export class DoubleDeletions {
  constructor(
    private readonly calls: StoreCalls,
    private readonly counters: CacheCounters,
    private readonly invalidations: Invalidations,
    private readonly scheduled: ScheduledDeletionsRunner,
    private readonly warnings: WarningLimiter,
  ) {}

  async run<T>(keys: readonly string[], write: () => Promise<T>, delay: number, failOpen: boolean): Promise<T> {
    await this.delete(keys, failOpen);
    // In case this process dies before the write ends. The schedule after the write replaces this one.
    await this.schedule(keys, delay, failOpen);
    try {
      return await write();
    } finally {
      await this.delete(keys, true);
      await this.schedule(keys, delay, true);
    }
  }

  private async schedule(keys: readonly string[], delay: number, failOpen: boolean): Promise<void> {
    const { calls, scheduled } = this;
    try {
      await calls.run('schedule of the second deletion', '', () => scheduled.schedule(keys, delay));
    } catch (error) {
      this.counters.redisErrors += 1;
      if (!failOpen) throw error;
      this.warnings.warn(
        `Redis did not schedule the second deletion of "${keys.join('", "')}", which this process carries out while it lives: ${String(error)}`,
      );
      setTimeout(() => void this.delete(keys, true), delay).unref();
    }
  }

  private async delete(keys: readonly string[], failOpen: boolean): Promise<void> {
    await this.invalidations.deleteEach(keys, (key) => ({ key }), failOpen);
  }
}
