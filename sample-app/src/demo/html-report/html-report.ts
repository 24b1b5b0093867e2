import { readFile } from 'node:fs/promises';
import type { Histogram } from 'hdr-histogram-js';
import type { DemoOptions } from '../options.js';
import { passed, verdict, type Findings, type StrategyResult } from '../verdict.js';
import { FAULT_NAMES } from '../fault.js';
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

export function findingsOf({ sales, ...others }: Outcome): Findings {
  return { results: sales.map(({ result }) => result), ...others };
}

const PERCENTILES = [10, 25, 50, 75, 90, 95, 99, 100];

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
