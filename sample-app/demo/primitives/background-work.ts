import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { REPORT_INTERVAL, RESTOCK_INTERVAL, type Environment } from '../environment.js';
import { call, mustCall, putOnSale, type Shop } from '../shop.js';
import { failuresAmong, type PrimitiveResult } from '../verdict.js';

// Trials of what the shop does by itself: one of its processes writes a report at each tick, and one of them, the
// leader, restocks.

/** Ticks that must have passed, and those that must have run. */
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

const SKU = 'leader-election';
const LEVEL = 10;
/** Restocks that each leader must have made. */
const LEAST_RESTOCKS = 3;
/** Milliseconds: more than the lease of a leader that was killed. */
const PATIENCE = 30_000;

interface Restock {
  readonly term: number;
  readonly process: number;
}

export interface RestocksByLeader {
  /** From the database, in the order in which they were committed. */
  readonly restocks: readonly Restock[];
  /** The process that was killed. */
  readonly killed: number;
}

/** Sells pieces of a product which the leader of the processes restocks. */
export class RestockedProduct {
  private sold = 0;

  constructor(private readonly environment: Environment) {}

  async putOnSale(): Promise<void> {
    const [shop] = this.environment.shops as [Shop];
    await putOnSale(shop, SKU, LEVEL);
    await mustCall(shop, 'PUT', `/products/${SKU}/level`, { level: LEVEL });
  }

  /** Sells until a process other than `killed` has restocked some times, and resolves to that process. */
  async sellUntilRestocked(killed?: number): Promise<number> {
    const until = performance.now() + PATIENCE;
    while (performance.now() < until) {
      const restocks = await restocksOf(this.environment.database);
      const last = restocks.at(-1);
      const byLast = restocks.filter(({ process }) => process === last?.process).length;
      if (last && last.process !== killed && byLast >= LEAST_RESTOCKS) return last.process;
      await this.sellOne();
    }
    throw new Error(`Nobody restocked ${SKU} for ${PATIENCE / 1_000} s`);
  }

  async count(killed: number): Promise<RestocksByLeader> {
    return { restocks: await restocksOf(this.environment.database), killed };
  }

  private async sellOne(): Promise<void> {
    const { shops } = this.environment;
    const shop = shops[this.sold % shops.length] as Shop;
    this.sold += 1;
    // A refusal does not matter: the killed leader may have held the lock of the product.
    await call(shop, 'POST', `/products/${SKU}/deduct`, { quantity: 1, orderId: `${SKU}-${this.sold}` });
    await sleep(RESTOCK_INTERVAL / 2);
  }
}

export function restocksResult({ restocks, killed }: RestocksByLeader): PrimitiveResult {
  const terms = [...new Set(restocks.map(({ term }) => term))];
  const processesOf = (term: number) =>
    new Set(restocks.filter((each) => each.term === term).map(({ process }) => process));
  const shared = terms.filter((term) => processesOf(term).size > 1);
  const back = restocks.filter(({ term }, index) => term < (restocks[index - 1]?.term ?? 0));
  return {
    primitive: 'leader-election',
    tried: 'the leader, which restocks a product, is killed',
    happened: `${terms.length} leaders, one after the other`,
    evidence: `${restocks.length} restocks in ${terms.length} terms, ${shared.length} of them of several processes`,
    failures: failuresAmong(
      [shared.length === 0, `${shared.length} of ${terms.length} terms had restocks of several processes`],
      [back.length === 0, `${back.length} restocks came after those of a later leader`],
      [restocks.at(-1)?.process !== killed, 'nobody restocked after the leader was killed'],
    ),
  };
}

async function restocksOf(database: pg.Pool): Promise<Restock[]> {
  const { rows } = await database.query<{ term: string; process: number }>(
    'SELECT term, process FROM restocks WHERE sku = $1 ORDER BY restock',
    [SKU],
  );
  return rows.map(({ term, process }) => ({ term: Number(term), process }));
}
