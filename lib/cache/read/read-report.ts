import { AsyncLocalStorage } from 'node:async_hooks';

export type ReadOutcome = 'hit' | 'miss' | 'stale';

/** What one read of the cache did. */
export interface CacheRead {
  readonly outcome: ReadOutcome;
  /**
   * How long the value is still fresh, in ms; of a miss, once it is stored. Absent when it is not known, or not stored.
   */
  readonly remaining?: number;
}

const WEIGHT: Record<ReadOutcome, number> = { hit: 0, stale: 1, miss: 2 };

/** Sums up the reads of one body: their worst outcome, and the shortest time for which a value is still fresh. */
export class ReadReport {
  private worst: ReadOutcome | undefined;
  private shortest = Infinity;

  /** `undefined` when nothing was read. */
  get outcome(): ReadOutcome | undefined {
    return this.worst;
  }

  /** In ms, 0 for a value that is stale; `undefined` when nothing was read. */
  get remaining(): number | undefined {
    return this.worst && this.shortest;
  }

  add({ outcome, remaining = 0 }: CacheRead): void {
    if (!this.worst || WEIGHT[outcome] > WEIGHT[this.worst]) this.worst = outcome;
    this.shortest = Math.min(this.shortest, outcome === 'stale' ? 0 : Math.max(0, remaining));
  }
}

/** Set by the first report: without one, reads make no look-up. */
let reports: AsyncLocalStorage<ReadReport> | undefined;

/** The report of the body that this code runs in, if there is one. */
export function currentReport(): ReadReport | undefined {
  return reports?.getStore();
}

/** Runs `body`, and adds its reads and those of all that it calls to `report`. */
export function withReadReport<T>(report: ReadReport, body: () => T): T {
  reports ??= new AsyncLocalStorage();
  return reports.run(report, body);
}
