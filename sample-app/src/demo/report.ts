import Table from 'cli-table3';
import type { Strategy } from '../deduction/strategy.js';
import { holds, type Audit } from './audit.js';
import type { LoadResult } from './load.js';
import type { ReadsResult } from './reads/cached-reads.js';
import { READS_HEAD, readsCells, readsVerdict, staleResults, staleVerdict } from './reads/reads-report.js';

export interface StrategyResult extends LoadResult, Audit {
  readonly strategy: Strategy;
}

export const HEAD = [
  'strategy',
  'accepted',
  'no stock',
  'busy',
  'errors',
  'left',
  'oversold by',
  'orders/s',
  'p50 ms',
  'p99 ms',
];

export function table(results: readonly StrategyResult[], colours: boolean): string {
  return tableOf(HEAD, results.map(cells), colours);
}

export function readsTable(results: readonly ReadsResult[], colours: boolean): string {
  return tableOf(READS_HEAD, results.map(readsCells), colours);
}

function tableOf(head: string[], rows: string[][], colours: boolean): string {
  const colAligns = ['left' as const, ...head.slice(1).map(() => 'right' as const)];
  const drawn = new Table({ head, colAligns, ...(!colours && { style: { head: [], border: [] } }) });
  drawn.push(...rows);
  return drawn.toString();
}

/** The row of a table below `HEAD`. */
export function cells(result: StrategyResult): string[] {
  const { strategy, accepted, outOfStock, busy, errors, stockLeft, oversoldBy, ordersPerSecond, p50, p99 } = result;
  const counts = [accepted, outOfStock, busy, errors, stockLeft, oversoldBy, Math.round(ordersPerSecond)];
  return [strategy, ...counts.map(String), p50.toFixed(1), p99.toFixed(1)];
}

/** The protected strategies that broke one of the invariants. */
export function failures(results: readonly StrategyResult[]): readonly StrategyResult[] {
  return results.filter((result) => result.strategy !== 'none' && !holds(result));
}

export function verdict(results: readonly StrategyResult[], stock: number, reads: readonly ReadsResult[]): string {
  const failed = failures(results);
  const stale = staleResults(reads).map(staleVerdict);
  if (failed.length > 0) {
    const each = failed.map((result) => `${result.strategy} (${brokenOf(result).join(', ')})`);
    return `FAILED: ${[`${each.join('; ')} broke what a protected strategy must keep`, ...stale].join('; ')}.`;
  }
  if (stale.length > 0) return `FAILED: ${stale.join('; ')}.`;
  const kept = results.filter(({ strategy }) => strategy !== 'none').map(({ strategy }) => strategy);
  const none = results.find(({ strategy }) => strategy === 'none');
  const without =
    none &&
    (holds(none) ? `Without protection nothing went wrong this time` : `Without protection ${harm(none, stock)}`);
  const guarded = kept.length > 0 ? `${kept.join(', ')} sold what was there and not one piece more` : undefined;
  return `${[without, guarded, readsVerdict(reads)].filter((part) => part !== undefined).join('; ')}.`;
}

function harm({ sold, stockLeft, oversoldBy }: StrategyResult, stock: number): string {
  if (oversoldBy > 0) return `the shop sold ${sold} of ${stock} pieces, ${oversoldBy} more than it had`;
  return `the shop sold ${sold} of ${stock} pieces and still shows ${stockLeft} in stock`;
}

function brokenOf({ invariants }: Audit): string[] {
  return Object.entries(invariants)
    .filter(([, kept]) => !kept)
    .map(([name]) => name);
}
