import { randomUUID } from 'node:crypto';
import type { Strategy } from '../../sample-app/src/deduction/strategy.js';
import { kindOfError, sendOrders, type LoadResult, type Reply } from '../../sample-app/demo/load.js';
import type { Shop } from '../../sample-app/demo/shop.js';
import { eventually } from '../support/eventually.js';
import { post } from '../support/shop.js';

/** What the clients of one process of the shop saw. */
export class SeenAt {
  /** Requests without an answer. */
  underWay = 0;
  /** The numbers of the orders that it accepted. */
  readonly accepted = new Set<string>();
  /** How requests ended that it did not carry out, once for each. */
  readonly refusals: string[] = [];

  answered(reply: Reply | Error): void {
    if (!(reply instanceof Error) && reply.status === 201) {
      this.accepted.add((JSON.parse(reply.body) as { orderId: string }).orderId);
    } else this.refusals.push(kindOfError(reply));
  }
}

/** Customers who buy one piece at a time at all processes of the shop, and go to another one where one refuses. */
export class ShopSale {
  readonly seen: ReadonlyMap<Shop, SeenAt>;

  constructor(private readonly shops: readonly Shop[]) {
    this.seen = new Map(shops.map((shop) => [shop, new SeenAt()]));
  }

  at(shop: Shop): SeenAt {
    return this.seen.get(shop) as SeenAt;
  }

  /** How many orders were accepted so far. */
  get accepted(): number {
    return [...this.seen.values()].reduce((sum, { accepted }) => sum + accepted.size, 0);
  }

  /** Orders that are deducted from the stock, and nothing more. */
  async deduct(strategy: Strategy, sku: string, orders: number, concurrency: number): Promise<LoadResult> {
    const { result } = await sendOrders({
      shops: this.shops,
      strategy,
      sku,
      orders,
      concurrency,
      timeLimit: 120,
      sendAgain: () => true,
      onAnswer: () => {},
      onAttempt: (shop, reply) => void this.watch(shop, reply),
      onSilence: () => {},
    });
    return result;
  }

  /** Orders that are paid as well. Resolves to their numbers. */
  async place(sku: string, orders: number, concurrency: number): Promise<readonly string[]> {
    const numbers = Array.from({ length: orders }, () => randomUUID());
    const unsent = numbers.values();
    const customer = async (_: unknown, index: number) => {
      for (const orderId of unsent) await this.placeOne(sku, orderId, index);
    };
    await Promise.all(Array.from({ length: concurrency }, customer));
    return numbers;
  }

  private async placeOne(sku: string, orderId: string, index: number): Promise<void> {
    let attempt = index;
    await eventually(
      async () => {
        const shop = this.shops[attempt++ % this.shops.length] as Shop;
        const order = { orderId, sku, quantity: 1, customer: orderId };
        const reply = post(shop, '/orders', order).then(
          ({ status, body }): Reply => ({ status, body: JSON.stringify(body) }),
          (error: Error) => new Error((error.cause as NodeJS.ErrnoException | undefined)?.code ?? error.message),
        );
        const seen = await this.watch(shop, reply);
        return !(seen instanceof Error) && seen.status === 201;
      },
      { within: 120_000, every: 50 },
    );
  }

  private async watch(shop: Shop, reply: Promise<Reply | Error>): Promise<Reply | Error> {
    const seen = this.at(shop);
    seen.underWay += 1;
    const answer = await reply;
    seen.underWay -= 1;
    seen.answered(answer);
    return answer;
  }
}
