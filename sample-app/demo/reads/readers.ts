import autocannon from 'autocannon';
import { build, type Histogram } from 'hdr-histogram-js';
import type { Shop } from '../shop.js';
import { zipf } from '../zipf.js';
import type { StockHistory } from './cached-reads.js';

/** What the clients that read saw. */
export interface ReadLoadResult {
  readonly reads: number;
  readonly errors: number;
  readonly readsPerSecond: number;
  /** Milliseconds from sending a read to its answer. */
  readonly p50: number;
  readonly p99: number;
  /** Reads that showed a stock from before an order or a restock that was answered before the read was sent. */
  readonly staleReads: number;
}

interface ReadProduct {
  readonly sku: string;
  readonly history: StockHistory;
}

interface ReadLoad {
  readonly shops: readonly Shop[];
  readonly cache: 'on' | 'off';
  readonly products: readonly ReadProduct[];
  readonly readers: number;
  readonly seconds: number;
  readonly onAnswer: (reads: number) => void;
}

/** What a connection is reading. */
interface ReadContext {
  product: ReadProduct;
  answered: number;
}

/** How often autocannon checks whether it is done, in milliseconds. Its default is a second. */
const SAMPLE_INTERVAL = 100;

/**
 * Reads products from all processes at once, each reader one after the other, and the first of the products most often.
 */
export async function readProducts(load: ReadLoad): Promise<ReadLoadResult> {
  const { readers, onAnswer } = load;
  const seen = { reads: 0, errors: 0, staleReads: 0 };
  const latency = build();
  const start = performance.now();
  let end = start;
  const shops = load.shops.slice(0, readers);
  const connections = inShares(readers, shops.length);
  const answered = () => {
    end = performance.now();
    onAnswer(seen.reads);
  };
  await Promise.all(
    shops.map((shop, index) => readFrom(shop, connections[index] as number, load, seen, latency, answered)),
  );
  return {
    ...seen,
    readsPerSecond: seen.reads / Math.max((end - start) / 1_000, Number.EPSILON),
    p50: latency.getValueAtPercentile(50) / 1_000,
    p99: latency.getValueAtPercentile(99) / 1_000,
  };
}

async function readFrom(
  shop: Shop,
  connections: number,
  { cache, products, seconds }: ReadLoad,
  seen: { reads: number; errors: number; staleReads: number },
  latency: Histogram,
  answered: () => void,
): Promise<void> {
  const draw = zipf(products.length, 1);
  await fire(
    {
      url: shop.url,
      connections,
      duration: seconds,
      requests: [
        {
          // Called right before it is sent.
          setupRequest: (request, context) => {
            const product = products[draw()] as ReadProduct;
            Object.assign(context, { product, answered: product.history.answered } satisfies ReadContext);
            return { ...request, path: `/products/${product.sku}?cache=${cache}` };
          },
          onResponse: (status, body, context) => {
            const { product, answered: before } = context as ReadContext;
            if (status !== 200) seen.errors += 1;
            else {
              seen.reads += 1;
              const { stock } = JSON.parse(body) as { stock: number };
              if (product.history.isStale(stock, before)) seen.staleReads += 1;
            }
            answered();
          },
        },
      ],
    },
    latency,
  );
}

/** Sends the requests of the options until they are done. `latency` gets the microseconds of each answer. */
async function fire(options: autocannon.Options, latency: Histogram): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const instance = autocannon({ ...options, sampleInt: SAMPLE_INTERVAL }, (error: Error | null) =>
      error ? reject(error) : resolve(),
    );
    instance.on('response', (_client, _status, _bytes, milliseconds) => latency.recordValue(milliseconds * 1_000));
  });
}

/** Splits `total` into `parts` whole shares that differ by one at most. */
function inShares(total: number, parts: number): number[] {
  return Array.from({ length: parts }, (_, index) => Math.floor((total + index) / parts));
}
