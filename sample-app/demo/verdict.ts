import type pg from 'pg';
import type { LoadResult } from './load.js';
import type { ReadsResult } from './reads/cached-reads.js';
import type { Primitive, Strategy } from './shop-facts.js';
import { percent, plural } from './words.js';

/** The result of the sale with one strategy. */
export interface StrategyResult extends LoadResult, Audit {
  readonly strategy: Strategy;
  /** Pieces on sale, and orders for them. */
  readonly stock: number;
  readonly ordered: number;
  /** Whether the requested fault struck before the end of the sale. */
  readonly struck?: boolean;
}

/** What the database says was sold, and whether that is possible. */
export interface Audit {
  /** Rows of orders. */
  readonly orders: number;
  /** Pieces in them. */
  readonly sold: number;
  readonly stockLeft: number;
  /** Pieces sold in excess of the stock, or missing from its count. */
  readonly oversoldBy: number;
  /**
   * I1: no more was sold than there was. I2: the stock left is the initial stock less what was sold. I3: every accepted
   * order has a row, and every row an accepted order, except for failed orders, whose clients cannot know.
   */
  readonly invariants: { readonly I1: boolean; readonly I2: boolean; readonly I3: boolean };
}

/** What the demo found out about one primitive. */
export interface PrimitiveResult {
  readonly primitive: Primitive;
  /** What the demo did. */
  readonly tried: string;
  /** What its clients saw. */
  readonly happened: string;
  /** What the database, or the payment provider of the demo, counted. */
  readonly evidence: string;
  /** How the primitive broke its promise; empty where it did not. */
  readonly failures: readonly string[];
}

/** All results of the demo, and why it ended early, if it did. */
export interface Findings {
  readonly results: readonly StrategyResult[];
  readonly reads: readonly ReadsResult[];
  readonly primitives: readonly PrimitiveResult[];
  readonly ended?: string;
}

/** Whether the demo showed what it promises. */
export function passed(findings: Findings): boolean {
  return findings.results.every((each) => failuresOf(each).length === 0) && otherFailures(findings).length === 0;
}

/** One sentence: what was shown, or what failed. */
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
function readsVerdict(results: readonly ReadsResult[]): string | undefined {
  const cached = results.find(({ cache }) => cache === 'on');
  if (!cached) return undefined;
  const { reads, writes } = cached;
  return `the cache answered ${percent(cached.hitRate)} of ${reads} reads during ${writes} writes, and none with a stock from before an answered one`;
}

/** The messages whose conditions do not hold. */
export function failuresAmong(...checks: readonly (readonly [kept: boolean, otherwise: string])[]): string[] {
  return checks.filter(([kept]) => !kept).map(([, otherwise]) => otherwise);
}

function primitivesFailures(results: readonly PrimitiveResult[]): string[] {
  return results
    .filter(({ failures }) => failures.length > 0)
    .map(({ primitive, failures }) => `${primitive}: ${failures.join(', ')}`);
}

/** Sums up what the primitives did, if they were tried. */
function primitivesVerdict(results: readonly PrimitiveResult[]): string | undefined {
  if (results.length === 0) return undefined;
  const names = [...new Set(results.map(({ primitive }) => primitive))];
  return `${names.join(', ')} kept what they promise`;
}

export async function audit(
  database: pg.Pool,
  sku: string,
  stockAtStart: number,
  { accepted, errors }: LoadResult,
): Promise<Audit> {
  const { rows } = await database.query<{ orders: string; sold: string; stock: number }>(
    `SELECT stock, (SELECT count(*) FROM orders o WHERE o.sku = p.sku) AS orders,
            (SELECT coalesce(sum(quantity), 0) FROM orders o WHERE o.sku = p.sku) AS sold
     FROM products p WHERE sku = $1`,
    [sku],
  );
  const row = rows[0];
  if (!row) throw new Error(`Product ${sku} vanished`);
  const [orders, sold, stockLeft] = [Number(row.orders), Number(row.sold), row.stock];
  return {
    orders,
    sold,
    stockLeft,
    oversoldBy: Math.max(0, sold - stockAtStart),
    invariants: {
      I1: sold <= stockAtStart,
      I2: stockLeft === stockAtStart - sold,
      I3: accepted <= orders && orders <= accepted + errors,
    },
  };
}

export async function stockOf(database: pg.Pool, sku: string): Promise<number> {
  const { rows } = await database.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
  if (!rows[0]) throw new Error(`Product ${sku} vanished`);
  return rows[0].stock;
}

export function holds({ invariants }: Audit): boolean {
  return invariants.I1 && invariants.I2 && invariants.I3;
}
