import { setMaxListeners } from 'node:events';
import type { CacheStats } from 'nest-redis-lock';
import { putOnSale } from '../put-on-sale.js';
import type { Shop } from '../shop-process.js';
import { ProductWriter, STOCK_AT_START } from './product-writer.js';
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

export interface ReadSettings {
  readonly readers: number;
  readonly readSeconds: number;
  readonly products: number;
  /** Orders and restocks a second, of all products together. */
  readonly writes: number;
}

const WARM_UP_SECONDS = 0.2;
const TIME_LIMIT = 10_000;

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
