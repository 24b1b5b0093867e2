import { AsyncLocalStorage } from 'node:async_hooks';

export type ReadOutcome = 'hit' | 'miss' | 'stale';

/** What one read of the cache did. */
export interface CacheRead {
  readonly outcome: ReadOutcome;
  /**
   * How long the value is still fresh, in ms; after a miss, once it is stored. Absent if it is unknown or not stored.
   */
  readonly remaining?: number;
}

const WEIGHT: Record<ReadOutcome, number> = { hit: 0, stale: 1, miss: 2 };

/** Sums up the reads of one body: their worst outcome, and the shortest time that is left until a value is stale. */
export class ReadReport {
  private worst: ReadOutcome | undefined = undefined;
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

/** A read, for the reports of its callers. */
interface ReportedRead {
  readonly promise: Promise<unknown>;
  readonly outcome: ReadOutcome;
  /** When the `ttl` of the value ends, in ms of the wall clock; absent if the value is not stored. */
  readonly freshUntil: number | undefined;
  /** Resolves when it is known whether the value is stored. */
  untilStored(): Promise<void>;
}

/** The value of the read; adds what the read did to the report of this caller, who waits until that is known. */
export function reported(read: ReportedRead, report: ReadReport | undefined): Promise<unknown> {
  const { promise } = read;
  if (!report) return promise;
  return promise.then(async (value) => {
    await read.untilStored();
    const { outcome, freshUntil } = read;
    report.add(freshUntil === undefined ? { outcome } : { outcome, remaining: freshUntil - Date.now() });
    return value;
  });
}

/** Its storage is created with the first report, so that without one reads make no look-up. */
export const readReports: { storage: AsyncLocalStorage<ReadReport> | undefined } = { storage: undefined };

/** The report of the body that this code runs in, if there is one. */
export function currentReport(): ReadReport | undefined {
  return readReports.storage?.getStore();
}

/** Runs `body`, and adds all reads inside it to `report`. */
export function withReadReport<T>(report: ReadReport, body: () => T): T {
  readReports.storage ??= new AsyncLocalStorage();
  return readReports.storage.run(report, body);
}
