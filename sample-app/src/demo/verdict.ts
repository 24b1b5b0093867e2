import type { Strategy } from '../deduction/strategy.js';
import { holds, type Audit } from './audit.js';
import type { LoadResult } from './load.js';
import { plural } from './plural.js';
import type { PrimitiveResult } from './primitives/primitive-result.js';
import { primitivesFailures, primitivesVerdict } from './primitives/primitives-report.js';
import type { ReadsResult } from './reads/cached-reads.js';
import { readsFailures, readsVerdict } from './reads/reads-report.js';

/** The result of the sale with one strategy. */
export interface StrategyResult extends LoadResult, Audit {
  readonly strategy: Strategy;
  /** Pieces on sale, and orders for them. */
  readonly stock: number;
  readonly ordered: number;
  /** Whether the requested fault struck before the end of the sale. */
  readonly struck?: boolean;
}

/** All results of the demo, and why it ended early, if it did. */
export interface Findings {
  readonly results: readonly StrategyResult[];
  readonly reads: readonly ReadsResult[];
  readonly primitives: readonly PrimitiveResult[];
  readonly ended?: string;
}

/** How a protected strategy broke its promises; for the unprotected one, only what kept it from being tried. */
export function failuresOf(result: StrategyResult): string[] {
  const { strategy, errors, errorKinds, ordered, struck } = result;
  const failed = [];
  if (strategy !== 'none') failed.push(...broken(result));
  if (errors > 0) failed.push(`${errors} of ${plural(ordered, 'order')} failed (${listOf(errorKinds)})`);
  if (strategy !== 'none') failed.push(...unsold(result));
  if (struck === false) failed.push('the sale was over before the fault struck');
  return failed;
}

/** Whether the demo showed what it promises. */
export function passed(findings: Findings): boolean {
  return findings.results.every((each) => failuresOf(each).length === 0) && otherFailures(findings).length === 0;
}

export function verdict(findings: Findings): string {
  const { results, reads, primitives } = findings;
  if (!passed(findings)) {
    const each = results
      .map((result) => ({ strategy: result.strategy, failed: failuresOf(result) }))
      .filter(({ failed }) => failed.length > 0)
      .map(({ strategy, failed }) => `${strategy}: ${failed.join(', ')}`);
    return `FAILED: ${[...each, ...otherFailures(findings)].join('; ')}.`;
  }
  const kept = results.filter(({ strategy }) => strategy !== 'none').map(({ strategy }) => strategy);
  const none = results.find(({ strategy }) => strategy === 'none');
  const without =
    none && (holds(none) ? `Without protection nothing went wrong this time` : `Without protection ${harm(none)}`);
  const guarded = kept.length > 0 ? `${kept.join(', ')} sold what was there and not one piece more` : undefined;
  const parts = [without, guarded, readsVerdict(reads), primitivesVerdict(primitives)];
  return `${parts.filter((part) => part !== undefined).join('; ')}.`;
}

function otherFailures({ reads, primitives, ended }: Findings): string[] {
  return [...readsFailures(reads), ...primitivesFailures(primitives), ...(ended === undefined ? [] : [ended])];
}

function broken({ invariants, sold, stock, stockLeft, accepted, orders }: StrategyResult): string[] {
  return [
    ...(invariants.I1 ? [] : [`${sold} of ${plural(stock, 'piece')} were sold (I1)`]),
    ...(invariants.I2
      ? []
      : [`${stockLeft} of ${plural(stock, 'piece')} are shown as left after ${sold} were sold (I2)`]),
    ...(invariants.I3 ? [] : [`${accepted} orders were accepted and ${orders} are in the database (I3)`]),
  ];
}

/** What could have been sold and was not. */
function unsold({ sold, stock, ordered, busy }: StrategyResult): string[] {
  const possible = Math.min(stock, ordered);
  if (sold >= possible) return [];
  const because = busy > 0 ? ` (${plural(busy, 'order')} refused as busy)` : '';
  return [`${possible - sold} of ${plural(possible, 'piece')} that were ordered stayed unsold${because}`];
}

function listOf(kinds: Readonly<Record<string, number>>): string {
  return Object.entries(kinds)
    .map(([kind, times]) => `${times} × ${kind}`)
    .join(', ');
}

function harm({ sold, stock, stockLeft, oversoldBy }: StrategyResult): string {
  if (oversoldBy > 0) return `the shop sold ${sold} of ${stock} pieces, ${oversoldBy} more than it had`;
  return `the shop sold ${sold} of ${stock} pieces and still shows ${stockLeft} in stock`;
}
