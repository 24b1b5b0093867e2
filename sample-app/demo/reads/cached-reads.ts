import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheStats } from 'nest-redis-lock';
import { putOnSale, type Shop } from '../shop.js';
import { readProducts, type ReadLoadResult } from './readers.js';

/** The result of reading with or without the cache. */
export interface ReadsResult extends ReadLoadResult {
  readonly cache: 'on' | 'off';
  /** Reads that reached the database: with the cache, the loaders that it called. */
  readonly databaseReads: number;
  /** The share of the reads that did not reach it, from 0 to 1. */
  readonly hitRate: number;
  /** Orders and restocks meanwhile. */
  readonly writes: number;
}

interface ReadSettings {
  readonly readers: number;
  readonly readSeconds: number;
  readonly products: number;
  /** Orders and restocks a second, of all products together. */
  readonly writes: number;
}

const WARM_UP_SECONDS = 0.2;
/** Milliseconds for one answer of the shop. */
const TIME_LIMIT = 10_000;
const STOCK_AT_START = 1_000;
/** Every tenth write is a restock, of more than the orders before it took, so that no stock occurs twice. */
const WRITES_PER_RESTOCK = 10;
const RESTOCK = 100;

/** Lets clients read products from all processes of the shop while orders and restocks change them. */
export async function readWhileChanging(
  shops: readonly Shop[],
  cache: 'on' | 'off',
  { readers, readSeconds, products: count, writes }: ReadSettings,
  onAnswer: (reads: number) => void,
): Promise<ReadsResult> {
  const products = Array.from({ length: count }, (_, index) => new ProductWriter(`cup-${cache}-${index}`, shops));
  await Promise.all(
    products.map(({ sku }, index) => putOnSale(shops[index % shops.length] as Shop, sku, STOCK_AT_START)),
  );
  const load = { shops, cache, products, readers };
  await readProducts({ ...load, seconds: WARM_UP_SECONDS, onAnswer: () => {} });

  const before = await loaderCalls(shops);
  const stopping = new AbortController();
  setMaxListeners(count, stopping.signal);
  const writing = Promise.all(products.map((product) => product.write((count / writes) * 1_000, stopping.signal)));
  // The error is awaited below.
  writing.catch(() => {});
  const result = await readProducts({ ...load, seconds: readSeconds, onAnswer });
  stopping.abort();
  const written = (await writing).reduce((sum, each) => sum + each, 0);
  const databaseReads = cache === 'on' ? (await loaderCalls(shops)) - before : result.reads;
  const hitRate = result.reads === 0 ? 0 : 1 - databaseReads / result.reads;
  return { cache, ...result, databaseReads, hitRate, writes: written };
}

async function loaderCalls(shops: readonly Shop[]): Promise<number> {
  const calls = await Promise.all(
    shops.map(async ({ url }) => {
      const response = await fetch(`${url}/cache/stats`, { signal: AbortSignal.timeout(TIME_LIMIT) });
      return ((await response.json()) as CacheStats).loads;
    }),
  );
  return calls.reduce((sum, each) => sum + each, 0);
}

/** The only writer of one product's stock: sends an order or a restock, waits for its answer, and pauses. */
class ProductWriter {
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

/**
 * The stocks of one product, write by write. No stock occurs twice, and one writer sends one write after the other, so
 * a stock that was read shows after which write it was read.
 */
export class StockHistory {
  private readonly writeOf = new Map<number, number>();
  private answeredWrites = 0;

  constructor(stock: number) {
    this.writeOf.set(stock, 0);
  }

  /** How many writes were answered. */
  get answered(): number {
    return this.answeredWrites;
  }

  /** Called when a write is sent that leaves this stock. */
  send(stock: number): void {
    if (this.writeOf.has(stock)) throw new Error(`A stock of ${stock} was there before: reads of it tell nothing`);
    this.writeOf.set(stock, this.writeOf.size);
  }

  /** Called when the last write was answered. */
  answer(): void {
    this.answeredWrites = this.writeOf.size - 1;
  }

  /** Whether this is older than the stock after the first `answered` writes. A stock that never was counts as older. */
  isStale(stock: number, answered: number): boolean {
    const write = this.writeOf.get(stock);
    return write === undefined || write < answered;
  }
}
