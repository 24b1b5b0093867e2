import type { ReadsResult } from './cached-reads.js';

export const READS_HEAD = [
  'cache',
  'reads',
  'errors',
  'reads/s',
  'p50 ms',
  'p99 ms',
  'hit rate',
  'database reads',
  'writes',
  'stale reads',
];

/** The row of a table below `READS_HEAD`. */
export function readsCells(result: ReadsResult): string[] {
  const { cache, reads, errors, readsPerSecond, p50, p99, databaseReads, writes, staleReads } = result;
  const counts = [reads, errors, Math.round(readsPerSecond)].map(String);
  return [
    cache,
    ...counts,
    p50.toFixed(1),
    p99.toFixed(1),
    percent(result),
    ...[databaseReads, writes, staleReads].map(String),
  ];
}

/** Those in which somebody was shown what was no longer true. */
export function staleResults(results: readonly ReadsResult[]): readonly ReadsResult[] {
  return results.filter(({ staleReads }) => staleReads > 0);
}

/** What the cache did, if it was asked. */
export function readsVerdict(results: readonly ReadsResult[]): string | undefined {
  const cached = results.find(({ cache }) => cache === 'on');
  if (!cached) return undefined;
  const { reads, writes } = cached;
  return `the cache answered ${percent(cached)} of ${reads} reads during ${writes} writes, and none with a stock from before an answered one`;
}

export function staleVerdict({ cache, reads, staleReads }: ReadsResult): string {
  return `${staleReads} of ${reads} reads with the cache ${cache} showed a stock from before a write that had been answered`;
}

function percent({ hitRate }: ReadsResult): string {
  return `${(hitRate * 100).toFixed(1)} %`;
}
