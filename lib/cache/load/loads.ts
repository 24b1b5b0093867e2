import type { EntrySettings } from '../options/entry-settings.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { Loader } from './cache-loader.js';
import type { LoadCommits, LoadResult } from './load-commits.js';
import type { LoadLease } from './load-lease.js';
import type { LoaderRunner } from './loader-runner.js';

/**
 * Loads values. Each method calls `done` or `failed` once. `stale` becomes `context.stale` of the loader.
 */
export class Loads {
  constructor(
    private readonly runner: LoaderRunner,
    private readonly commits: LoadCommits,
    private readonly counters: CacheCounters,
  ) {}

  /** Keeps the lease while the loader runs, and stores what it returns. */
  underLease(
    lease: LoadLease,
    loader: Loader<unknown>,
    settings: EntrySettings,
    stale: unknown,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    lease.startRenewal();
    const begunAt = performance.now();
    this.runner.run(
      lease.key,
      loader,
      settings,
      stale,
      (loaded) => {
        lease.stopRenewal();
        this.commits.store(lease, settings, loaded, performance.now() - begunAt, done, failed);
      },
      (error) => {
        lease.stopRenewal();
        lease.release();
        failed(error);
      },
    );
  }

  /** Runs the loader and stores nothing: a write is under way, or the store is away. */
  unstored(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    stale: unknown,
    done: (result: LoadResult) => void,
    failed: (error: unknown) => void,
  ): void {
    this.counters.unstoredLoads += 1;
    this.runner.run(key, loader, settings, stale, done, failed);
  }
}
