import Table from 'cli-table3';
import { plural } from '../words.js';
import type { SchemeResult } from './comparison.js';
import { AFTER_RESTART, FREEZE, PATIENCE, type FaultOutcome } from './faults.js';

const HEAD = ['scheme', 'orders/s', 'p50 ms', 'p99 ms', 'lock ms', 'oversold', 'killed', 'frozen', 'restarted'];
const seconds = (milliseconds: number) => `${(milliseconds / 1_000).toFixed(1)} s`;

/** What the columns mean. */
export const COMPARISON_NOTES = `orders/s, p50, p99: a sale in which nothing fails, over HTTP. lock: p50 / p99 of taking a lock that nobody wants.
oversold: pieces sold beyond the stock in that sale.
killed, frozen (for ${seconds(FREEZE)}), restarted: what struck the process in the middle of an order, or the server that keeps
orders apart. The time until another process sold the product; below it, what became of the order that was struck.
It goes on for ${seconds(AFTER_RESTART)} after a restart. oversold 1: both orders sold the same piece.`;

export function comparisonTable(results: readonly SchemeResult[], colours: boolean): string {
  const colAligns = ['left' as const, ...HEAD.slice(1).map(() => 'right' as const)];
  const table = new Table({ head: HEAD, colAligns, ...(!colours && { style: { head: [], border: [] } }) });
  for (const result of results) table.push(rowOf(result));
  return table.toString();
}

/** Whether no scheme broke its promise, and what was seen of each. */
export function comparisonVerdict(results: readonly SchemeResult[]): { passed: boolean; text: string } {
  const broken = results.filter((result) => result.scheme.promises && oversoldOf(result) > 0);
  if (broken.length > 0) {
    const each = broken.map((result) => `${result.scheme.title} oversold ${plural(oversoldOf(result), 'piece')}`);
    return { passed: false, text: `FAILED: where nothing failed, ${each.join(', ')}.` };
  }
  const harmed = results.map((result) => ({ title: result.scheme.title, harms: harmsOf(result) }));
  const seen = harmed.filter(({ harms }) => harms.length > 0).map(({ title, harms }) => `${title} ${harms.join(', ')}`);
  const harm = seen.length > 0 ? ` Seen to fail: ${seen.join('; ')}.` : '';
  return { passed: true, text: `Where nothing failed, no scheme that promises exclusion oversold.${harm}` };
}

function rowOf(result: SchemeResult): Table.HorizontalTableRow {
  const { title } = result.scheme;
  if ('notRun' in result)
    return [title, { colSpan: HEAD.length - 1, content: `not run: ${result.notRun}`, hAlign: 'left' }];
  const { sale, acquire, killed, frozen, restarted } = result;
  return [
    title,
    String(Math.round(sale.soldPerSecond)),
    sale.p50.toFixed(1),
    sale.p99.toFixed(1),
    acquire ? `${acquire.p50.toFixed(1)} / ${acquire.p99.toFixed(1)}` : '',
    String(sale.oversoldBy),
    ...[killed, frozen, restarted].map(cellOf),
  ];
}

function cellOf({ nextSale, soldTwice, struck }: FaultOutcome): string {
  const time = nextSale === null ? `stuck > ${PATIENCE / 1_000} s` : seconds(nextSale);
  if (soldTwice > 0) return `${time}\noversold ${soldTwice}`;
  return struck === 'accepted' || struck === 'no answer' ? time : `${time}\nrefused`;
}

function oversoldOf(result: SchemeResult): number {
  return 'notRun' in result ? 0 : result.sale.oversoldBy;
}

function harmsOf(result: SchemeResult): string[] {
  if ('notRun' in result) return [];
  const { sale, killed, frozen, restarted } = result;
  const faults = Object.entries({
    'its holder was killed': killed,
    'it was frozen': frozen,
    'its server restarted': restarted,
  });
  return [
    ...(sale.oversoldBy > 0 ? [`oversold ${sale.oversoldBy} where nothing failed`] : []),
    ...(sale.errors > 0 ? [`failed ${plural(sale.errors, 'order')}`] : []),
    ...faults.flatMap(([fault, { nextSale, soldTwice }]) => [
      ...(nextSale === null ? [`was stuck after ${fault}`] : []),
      ...(soldTwice > 0 ? [`oversold ${soldTwice} after ${fault}`] : []),
    ]),
  ];
}
