import type { CacheTracker } from '../../lib/contracts/cache-store.js';

/** Records notifications in the order of their arrival. */
export class RecordingCacheTracker implements CacheTracker {
  readonly told: string[] = [];

  onChanged(key: string): void {
    this.told.push(`changed ${key}`);
  }
  onAllChanged(): void {
    this.told.push('all changed');
  }
  onTracked(): void {
    this.told.push('tracked');
  }
  onUntracked(why?: Error): void {
    this.told.push(why ? `refused ${why.message}` : 'untracked');
  }
}
