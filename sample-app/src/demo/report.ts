import Table from 'cli-table3';
import type { Strategy } from '../deduction/strategy.js';
import { holds, type Audit } from './audit.js';
import type { LoadResult } from './load.js';

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
  const colAligns = ['left' as const, ...HEAD.slice(1).map(() => 'right' as const)];
  const rows = new Table({ head: HEAD, colAligns, ...(!colours && { style: { head: [], border: [] } }) });
  for (const result of results) rows.push(cells(result));
  return rows.toString();
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

export function verdict(results: readonly StrategyResult[], stock: number): string {
  const failed = failures(results);
  if (failed.length > 0) {
    const each = failed.map((result) => `${result.strategy} (${brokenOf(result).join(', ')})`);
    return `FAILED: ${each.join('; ')} broke what a protected strategy must keep.`;
  }
  const kept = results.filter(({ strategy }) => strategy !== 'none').map(({ strategy }) => strategy);
  const none = results.find(({ strategy }) => strategy === 'none');
  const without =
    none &&
    (holds(none) ? `Without protection nothing went wrong this time` : `Without protection ${harm(none, stock)}`);
  const guarded = kept.length > 0 ? `${kept.join(', ')} sold what was there and not one piece more` : undefined;
  return `${[without, guarded].filter((part) => part !== undefined).join('; ')}.`;
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
