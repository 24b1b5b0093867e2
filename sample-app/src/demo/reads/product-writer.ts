import { setTimeout as sleep } from 'node:timers/promises';
import type { Shop } from '../shop-process.js';
import { StockHistory } from './stock-history.js';

export const STOCK_AT_START = 1_000;
/** Every tenth write is a restock, of more than the orders before it took, so that no stock occurs twice. */
const WRITES_PER_RESTOCK = 10;
const RESTOCK = 100;
const TIME_LIMIT = 10_000;

/** The only writer of one product's stock: sends an order or a restock, waits for its answer, and pauses. */
export class ProductWriter {
  readonly history = new StockHistory(STOCK_AT_START);
  private stock = STOCK_AT_START;
  private writes = 0;

  constructor(
    readonly sku: string,
    private readonly shops: readonly Shop[],
  ) {}

  /** Answers how many writes it sent. `pause`: milliseconds between two of them, on average. */
  async write(pause: number, signal: AbortSignal): Promise<number> {
    for (;;) {
      await sleep(pause * 2 * Math.random(), undefined, { signal }).catch(() => {});
      if (signal.aborted) return this.writes;
      await this.writeOnce();
    }
  }

  private async writeOnce(): Promise<void> {
    this.writes += 1;
    const restocks = this.writes % WRITES_PER_RESTOCK === 0;
    this.stock += restocks ? RESTOCK : -1;
    this.history.send(this.stock);
    if (restocks) await this.post('restock', { quantity: RESTOCK });
    else await this.post('deduct', { quantity: 1, orderId: `${this.sku}-${this.writes}` });
    this.history.answer();
  }

  private async post(path: string, body: object): Promise<void> {
    const shop = this.shops[this.writes % this.shops.length];
    const response = await fetch(`${shop?.url}/products/${this.sku}/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(TIME_LIMIT),
    });
    const answer = await response.text();
    const left = response.ok ? (JSON.parse(answer) as { stock: number }).stock : undefined;
    if (left === this.stock) return;
    throw new Error(`The shop should have answered a ${path} with a stock of ${this.stock}, and said: ${answer}`);
  }
}
