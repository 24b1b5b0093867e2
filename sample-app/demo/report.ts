import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import Table from 'cli-table3';
import { InvalidArgumentError } from 'commander';
import type { ReadsResult } from './reads/cached-reads.js';
import type { PrimitiveResult, StrategyResult } from './verdict.js';
import { percent } from './words.js';

export const HEAD = [
  'strategy',
  'accepted',
  'no stock',
  'busy',
  'errors',
  'left',
  'oversold',
  'sold/s',
  'p50 ms',
  'p99 ms',
];

/** The head of the table that shows what a fault cost. */
export const FAULT_HEAD = ['strategy', 'sent again', 'lost', 'longest wait', 'standstill', 'I1', 'I2', 'I3'];

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

export const PRIMITIVES_HEAD = ['primitive', 'tried', 'happened', 'evidence', 'promise'];
/** The widths of its columns; together with the lines between them 100 characters. */
const PRIMITIVES_WIDTHS = [17, 26, 19, 23, 9];

export function table(results: readonly StrategyResult[], colours: boolean): string {
  return tableOf(HEAD, results.map(cells), colours);
}

export function faultTable(results: readonly StrategyResult[], colours: boolean): string {
  return tableOf(FAULT_HEAD, results.map(faultCells), colours);
}

export function readsTable(results: readonly ReadsResult[], colours: boolean): string {
  return tableOf(READS_HEAD, results.map(readsCells), colours);
}

export function primitivesTable(results: readonly PrimitiveResult[], colours: boolean): string {
  const style = colours ? {} : { style: { head: [], border: [] } };
  const drawn = new Table({ head: PRIMITIVES_HEAD, colWidths: PRIMITIVES_WIDTHS, wordWrap: true, ...style });
  drawn.push(...results.map(primitiveCells));
  return drawn.toString();
}

/** The row of a table below `HEAD`. */
export function cells(result: StrategyResult): string[] {
  const { strategy, accepted, outOfStock, busy, errors, stockLeft, oversoldBy, soldPerSecond, p50, p99 } = result;
  const counts = [accepted, outOfStock, busy, errors, stockLeft, oversoldBy, Math.round(soldPerSecond)];
  return [strategy, ...counts.map(String), p50.toFixed(1), p99.toFixed(1)];
}

/** The row of a table below `FAULT_HEAD`. A lost order never got its answer. */
export function faultCells({
  strategy,
  resent,
  errors,
  longestWait,
  standstill,
  invariants,
}: StrategyResult): string[] {
  const seconds = (milliseconds: number) => `${(milliseconds / 1_000).toFixed(1)} s`;
  const kept = Object.values(invariants).map((holds) => (holds ? 'kept' : 'broken'));
  return [strategy, String(resent), String(errors), seconds(longestWait), seconds(standstill), ...kept];
}

/** The row of a table below `READS_HEAD`. */
export function readsCells(result: ReadsResult): string[] {
  const { cache, reads, errors, readsPerSecond, p50, p99, hitRate, databaseReads, writes, staleReads } = result;
  const counts = [reads, errors, Math.round(readsPerSecond)].map(String);
  return [
    cache,
    ...counts,
    p50.toFixed(1),
    p99.toFixed(1),
    percent(hitRate),
    ...[databaseReads, writes, staleReads].map(String),
  ];
}

/** The row of a table below `PRIMITIVES_HEAD`. */
export function primitiveCells({ primitive, tried, happened, evidence, failures }: PrimitiveResult): string[] {
  return [primitive, tried, happened, evidence, failures.length === 0 ? 'kept' : 'broken'];
}

/** The absolute path of a file that can be written. Opens it to find out, because permissions alone do not tell. */
export function writableFile(value: string): string {
  const file = resolve(value);
  const existed = existsSync(file);
  try {
    closeSync(openSync(file, 'a'));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new InvalidArgumentError(`It cannot be written (${reason}). Name a file in a folder that you may write to.`);
  }
  if (!existed) rmSync(file);
  return file;
}

function tableOf(head: string[], rows: string[][], colours: boolean): string {
  const colAligns = ['left' as const, ...head.slice(1).map(() => 'right' as const)];
  const drawn = new Table({ head, colAligns, ...(!colours && { style: { head: [], border: [] } }) });
  drawn.push(...rows);
  return drawn.toString();
}
