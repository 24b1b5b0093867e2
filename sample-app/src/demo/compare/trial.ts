import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { LOCK_TTL } from '../../settings.js';
import { kindOfError } from '../answer.js';
import { OrderClient, type Reply } from '../order-client.js';
import { putOnSale } from '../put-on-sale.js';
import type { Shop } from '../shop-process.js';
import type { Scheme } from './schemes.js';

/** What a fault did to the orders for one product. */
export interface FaultOutcome {
  /** Milliseconds from the fault until another process sold a piece; `null`: not within `PATIENCE`. */
  readonly nextSale: number | null;
  /** Pieces that were sold and that the stock still counts. */
  readonly soldTwice: number;
  /** What became of the order that the fault struck: `accepted`, `no answer`, or the status and code of its refusal. */
  readonly struck: string;
}

/** Milliseconds: a product that nobody could sell for this long counts as stuck. A lease ends well within it. */
export const PATIENCE = 3 * LOCK_TTL;
/** Milliseconds for the answer to one order, which the shop gives within 5 s of waiting for a lock. */
const ANSWER = 7_000;
const LAST_ANSWER = 20_000;
const PAUSE = 50;
const STOCK = 10;

/** One product, one order for it that a fault strikes, and the next one, which another process gets. */
export class Trial {
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
