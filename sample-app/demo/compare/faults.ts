import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { kindOfError, OrderClient, type Reply } from '../load.js';
import { LOCK_TTL } from '../shop-facts.js';
import { putOnSale, type Shop } from '../shop.js';
import type { Stage } from './comparison.js';
import type { Scheme } from './schemes.js';

/** Milliseconds: beyond the lease of a lock. */
export const FREEZE = 1.5 * LOCK_TTL;
/** Milliseconds for which an order goes on after its server serves again: another one may get in beside it. */
export const AFTER_RESTART = 1_000;
/** Milliseconds: a product that nobody could sell for this long counts as stuck. A lease ends well within it. */
export const PATIENCE = 3 * LOCK_TTL;
/** Milliseconds for the answer to one order, which the shop gives within 5 s of waiting for a lock. */
const ANSWER = 7_000;
const LAST_ANSWER = 20_000;
const PAUSE = 50;
/** Milliseconds until the orders must have come as far as the stock, and between two looks whether they have. */
const LONGEST_WAY = 20_000;
const LOOK = 20;
/** Pieces of each product. */
const STOCK = 10;

/** By what was done in the middle of an order. */
export interface FaultOutcomes {
  readonly killed: FaultOutcome;
  readonly frozen: FaultOutcome;
  readonly restarted: FaultOutcome;
}

/** What a fault did to the orders for one product. */
export interface FaultOutcome {
  /** Milliseconds from the fault until another process sold a piece; `null`: not within `PATIENCE`. */
  readonly nextSale: number | null;
  /** Pieces that were sold and that the stock still counts. */
  readonly soldTwice: number;
  /** What became of the order that the fault struck: `accepted`, `no answer`, or the status and code of its refusal. */
  readonly struck: string;
}

/** Strikes one order of each scheme with each fault. */
export async function outcomesOfFaults(
  stage: Stage,
  schemes: readonly Scheme[],
  database: pg.Pool,
): Promise<readonly FaultOutcomes[]> {
  const { killed, frozen } = await strikeShops(stage, schemes, database);
  const restarted = await restartServer(stage, schemes, database);
  return schemes.map((_, index) => ({
    killed: killed[index] as FaultOutcome,
    frozen: frozen[index] as FaultOutcome,
    restarted: restarted[index] as FaultOutcome,
  }));
}

/** Kills one process of the shop and freezes another one, while a third goes on. */
async function strikeShops(stage: Stage, schemes: readonly Scheme[], database: pg.Pool) {
  const [doomed, sleeper, other] = stage.shops;
  const [killed, frozen] = await Promise.all([
    Promise.all(schemes.map((scheme) => Trial.open(scheme, 'killed', other))),
    Promise.all(schemes.map((scheme) => Trial.open(scheme, 'frozen', other))),
  ]);
  const held = await HeldReads.begin(database);
  try {
    for (const trial of killed) trial.begin(doomed);
    for (const trial of frozen) trial.begin(sleeper);
    await held.are(killed.length + frozen.length);
    sleeper.process.pause();
    await doomed.process.kill();
    for (const trial of [...killed, ...frozen]) trial.compete(other);
  } finally {
    await held.end();
  }
  await sleep(FREEZE);
  sleeper.process.resume();
  return { killed: await outcomesOf(killed, database), frozen: await outcomesOf(frozen, database) };
}

async function restartServer(stage: Stage, schemes: readonly Scheme[], database: pg.Pool) {
  const [, holder, other] = stage.shops;
  const trials = await Promise.all(schemes.map((scheme) => Trial.open(scheme, 'restarted', other)));
  const held = await HeldReads.begin(database);
  try {
    for (const trial of trials) trial.begin(holder);
    await held.are(trials.length);
    for (const trial of trials) trial.compete(other);
    await stage.restartServer();
    await sleep(AFTER_RESTART);
  } finally {
    await held.end();
  }
  return outcomesOf(trials, database);
}

function outcomesOf(trials: readonly Trial[], database: pg.Pool): Promise<FaultOutcome[]> {
  return Promise.all(trials.map((trial) => trial.outcome(database)));
}

/** One product, one order for it that a fault strikes, and the next one, which another process gets. */
class Trial {
  private readonly client = new OrderClient();
  private struck: Promise<Reply | undefined> = Promise.resolve(undefined);
  private next: Promise<number | null> = Promise.resolve(null);

  private constructor(
    private readonly strategy: Scheme['strategy'],
    private readonly sku: string,
  ) {}

  static async open({ name, strategy }: Scheme, fault: string, shop: Shop): Promise<Trial> {
    const sku = `${name}-${fault}`;
    await putOnSale(shop, sku, STOCK);
    return new Trial(strategy, sku);
  }

  /** Sends the order that the fault will strike. */
  begin(shop: Shop): void {
    this.struck = this.order(shop, 'struck', LAST_ANSWER);
  }

  /** Sends another order to `shop`, again and again until it is accepted. */
  compete(shop: Shop): void {
    this.next = this.untilAccepted(shop);
  }

  async outcome(database: pg.Pool): Promise<FaultOutcome> {
    const [reply, nextSale] = await Promise.all([this.struck, this.next]);
    this.client[Symbol.dispose]();
    return { nextSale, soldTwice: await soldTwice(database, this.sku), struck: fateOf(reply) };
  }

  private async untilAccepted(shop: Shop): Promise<number | null> {
    const start = performance.now();
    for (;;) {
      const left = Math.ceil(start + PATIENCE - performance.now());
      if (left <= 0) return null;
      const reply = await this.order(shop, 'next', Math.min(left, ANSWER));
      if (reply?.status === 201) return performance.now() - start;
      await sleep(PAUSE);
    }
  }

  /** Resolves to undefined when there was no answer. */
  private async order(shop: Shop, name: string, limit: number): Promise<Reply | undefined> {
    const url = `${shop.url}/products/${this.sku}/deduct?strategy=${this.strategy}`;
    const body = { quantity: 1, orderId: `${this.sku}-${name}` };
    return this.client.post(url, body, AbortSignal.timeout(limit)).catch(() => undefined);
  }
}

function fateOf(reply: Reply | undefined): string {
  if (reply === undefined) return 'no answer';
  return reply.status === 201 ? 'accepted' : kindOfError(reply);
}

async function soldTwice(database: pg.Pool, sku: string): Promise<number> {
  const { rows } = await database.query<{ stock: number; sold: number }>(
    'SELECT stock, (SELECT coalesce(sum(quantity), 0)::int FROM orders o WHERE o.sku = p.sku) AS sold FROM products p WHERE sku = $1',
    [sku],
  );
  const [row] = rows;
  if (!row) throw new Error(`Product ${sku} vanished`);
  return row.sold - (STOCK - row.stock);
}

/**
 * Stops orders at their first use of the stock: they have taken their lock by then. The table is locked, so that every
 * statement that reads or writes it waits.
 */
class HeldReads {
  private constructor(
    private readonly database: pg.Pool,
    private readonly connection: pg.PoolClient,
  ) {}

  static async begin(database: pg.Pool): Promise<HeldReads> {
    const connection = await database.connect();
    // The server restarts meanwhile where it is the one that is tried.
    connection.on('error', () => {});
    await connection.query('BEGIN');
    await connection.query('LOCK TABLE products IN ACCESS EXCLUSIVE MODE');
    return new HeldReads(database, connection);
  }

  /** Waits until `count` statements wait. */
  async are(count: number): Promise<void> {
    const until = performance.now() + LONGEST_WAY;
    for (;;) {
      const waiting = await this.waiting();
      if (waiting >= count) return;
      if (performance.now() > until) throw new Error(`${waiting} of ${count} orders got as far as the stock`);
      await sleep(LOOK);
    }
  }

  /** Lets the statements go on. */
  async end(): Promise<void> {
    await this.connection.query('COMMIT').catch(() => {});
    this.connection.release(true);
  }

  private async waiting(): Promise<number> {
    const { rows } = await this.database.query<{ waiting: number }>(
      "SELECT count(*)::int AS waiting FROM pg_locks WHERE relation = 'products'::regclass AND NOT granted",
    );
    return rows[0]?.waiting ?? 0;
  }
}
