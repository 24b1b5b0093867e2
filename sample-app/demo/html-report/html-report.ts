import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Histogram } from 'hdr-histogram-js';
import { FAULT_NAMES } from '../fault.js';
import type { Answer } from '../load.js';
import type { DemoOptions } from '../options.js';
import { passed, verdict, type Findings, type StrategyResult } from '../verdict.js';
import { page } from './page.js';
import type { Moment } from './report-data.js';

/** The data of the sale with one strategy. */
export interface Sale {
  readonly result: StrategyResult;
  /** Microseconds. */
  readonly latency: Histogram;
  readonly course: readonly Moment[];
}

/** All that the demo found. */
export interface Outcome extends Omit<Findings, 'results'> {
  readonly sales: readonly Sale[];
}

/** Of the latencies. */
const PERCENTILES = [10, 25, 50, 75, 90, 95, 99, 100];
/** Between two looks at the stock. */
const INTERVAL_MILLISECONDS = 20;
/** More moments than a chart has room for. */
const MOST_MOMENTS = 600;

export function findingsOf({ sales, ...others }: Outcome): Findings {
  return { results: sales.map(({ result }) => result), ...others };
}

/** The whole report as one HTML file that needs no other. */
export async function htmlReport(
  outcome: Outcome,
  { instances, stock, orders, concurrency, readers, writes, fault }: DemoOptions,
  versions: Readonly<Record<string, string>>,
): Promise<string> {
  const { sales } = outcome;
  const findings = findingsOf(outcome);
  const { results, reads, primitives } = findings;
  const [chartLibrary, charts] = await Promise.all([
    readFile(new URL('chart.umd.min.js', import.meta.resolve('chart.js')), 'utf8'),
    readFile(new URL('browser/charts.js', import.meta.url), 'utf8'),
  ]);
  return page({
    verdict: verdict(findings),
    passed: passed(findings),
    ...(fault && { fault: FAULT_NAMES[fault] }),
    results,
    reads,
    primitives,
    data: {
      stock,
      percentiles: PERCENTILES,
      sales: sales.map(({ result: { strategy, soldPerSecond }, latency, course }) => ({
        strategy,
        soldPerSecond,
        latency: PERCENTILES.map((percentile) => latency.getValueAtPercentile(percentile) / 1_000),
        course,
      })),
    },
    settings: {
      'Shop processes': instances,
      Stock: stock,
      Orders: orders,
      'Orders at once': concurrency,
      ...(reads.length > 0 && { 'Readers at once': readers, 'Writes a second during the reads': writes }),
    },
    versions,
    date: new Date(),
    chartLibrary,
    charts,
  });
}

/** Records a sale from the moment it starts: orders accepted so far, and the stock that the database shows. */
export class CourseRecorder {
  private readonly start = performance.now();
  private readonly stopping = new AbortController();
  private readonly watching: Promise<void>;
  private moments: Moment[];
  private accepted = 0;
  private lastAnswer = 0;

  constructor(
    stock: number,
    private readonly stockLeft: () => Promise<number>,
  ) {
    this.moments = [{ seconds: 0, accepted: 0, stockLeft: stock }];
    this.watching = this.watch();
    // stop() reports the error.
    this.watching.catch(() => {});
  }

  answered(answer: Answer): void {
    if (answer === 'accepted') this.accepted += 1;
    this.lastAnswer = this.seconds();
  }

  async stop(): Promise<readonly Moment[]> {
    this.stopping.abort();
    await this.watching;
    const last = { seconds: this.lastAnswer, accepted: this.accepted, stockLeft: await this.stockLeft() };
    return [...this.moments.filter(({ seconds }) => seconds < last.seconds), last];
  }

  private async watch(): Promise<void> {
    const { signal } = this.stopping;
    let interval = INTERVAL_MILLISECONDS;
    while (!signal.aborted) {
      const stockLeft = await this.stockLeft();
      this.moments.push({ seconds: this.seconds(), accepted: this.accepted, stockLeft });
      if (this.moments.length > MOST_MOMENTS) {
        this.moments = this.moments.filter((_, index) => index % 2 === 0);
        interval *= 2;
      }
      await sleep(interval, undefined, { signal }).catch(() => {});
    }
  }

  private seconds(): number {
    return (performance.now() - this.start) / 1_000;
  }
}
