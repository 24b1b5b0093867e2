import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { REPORT_INTERVAL } from '../environment.js';
import { failuresAmong, type PrimitiveResult } from './primitive-result.js';

const LEAST_TICKS = 4;
const LEAST_REPORTS = 2;

export interface ReportsPerTick {
  readonly processes: number;
  /** Ticks that have passed. */
  readonly ticks: number;
  /** How often each tick ran that did, by the rows in the database. */
  readonly runs: readonly number[];
}

/** The tick that the clock shows. */
export function presentTick(): number {
  return Math.floor(Date.now() / REPORT_INTERVAL);
}

/** Counts the reports of the ticks after `first`, and waits until there were some. */
export async function countReports(database: pg.Pool, processes: number, first: number): Promise<ReportsPerTick> {
  // The present tick may not have its report yet.
  while (presentTick() - first - 1 < LEAST_TICKS) await sleep(100);
  const last = presentTick() - 1;
  const { rows } = await database.query<{ runs: number }>(
    'SELECT count(*)::int AS runs FROM stock_reports WHERE period > $1 AND period <= $2 GROUP BY period ORDER BY period',
    [first, last],
  );
  return { processes, ticks: last - first, runs: rows.map(({ runs }) => runs) };
}

/** A machine that stands still can leave ticks out, which the lock does not prevent. */
export function reportsResult({ processes, ticks, runs }: ReportsPerTick): PrimitiveResult {
  const reports = runs.reduce((sum, each) => sum + each, 0);
  return {
    primitive: 'scheduled-job',
    tried: `${ticks} ticks of a stock report, in ${processes} processes each`,
    happened: `${runs.length} ticks ran`,
    evidence: `${reports} reports, at most ${Math.max(0, ...runs)} for one tick`,
    failures: failuresAmong(
      [reports === runs.length, `${reports} reports for ${runs.length} ticks`],
      [runs.length >= LEAST_REPORTS, `only ${runs.length} of ${ticks} ticks ran`],
    ),
  };
}
