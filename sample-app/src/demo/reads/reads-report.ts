import type { ReadsResult } from './cached-reads.js';

export const READS_HEAD = [
  'cache',
  'reads',
  'errors',
  'reads/s',
  'p50 ms',
  'p99 ms',
  'hit rate',
  'db reads',
  'writes',
  'stale',
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

/** What must not occur in reads: a stock that was no longer true, or an error. */
export function readsFailures(results: readonly ReadsResult[]): string[] {
  return results.flatMap(({ cache, reads, errors, staleReads }) => {
    const which = `with the cache ${cache}`;
    return [
      ...(staleReads > 0
        ? [`${staleReads} of ${reads} reads ${which} showed a stock from before a write that had been answered`]
        : []),
      ...(errors > 0 ? [`${errors} of ${reads + errors} reads ${which} failed`] : []),
      ...(reads + errors === 0 ? [`no read ${which} was answered`] : []),
    ];
  });
}

/** Sums up what the cache did, if it was tried. */
export function readsVerdict(results: readonly ReadsResult[]): string | undefined {
  const cached = results.find(({ cache }) => cache === 'on');
  if (!cached) return undefined;
  const { reads, writes } = cached;
  return `the cache answered ${percent(cached)} of ${reads} reads during ${writes} writes, and none with a stock from before an answered one`;
}

function percent({ hitRate }: ReadsResult): string {
  return `${(hitRate * 100).toFixed(1)} %`;
}
