import type autocannon from 'autocannon';
import { build, type Histogram } from 'hdr-histogram-js';
import type { Strategy } from '../deduction/strategy.js';
import { fire, inShares } from './cannon.js';
import type { Shop } from './shop-process.js';

/** What the clients of the shop saw. */
export interface LoadResult {
  readonly accepted: number;
  readonly outOfStock: number;
  /** Answered that the shop is too busy with this product: 423, or a strategy that gave up. */
  readonly busy: number;
  readonly errors: number;
  readonly ordersPerSecond: number;
  /** Milliseconds from sending an order to its answer. */
  readonly p50: number;
  readonly p99: number;
}

export interface Load {
  readonly shops: readonly Shop[];
  readonly strategy: Strategy;
  readonly sku: string;
  readonly orders: number;
  readonly concurrency: number;
  readonly onAnswer: (answer: Answer) => void;
}

const TIMEOUT_SECONDS = 60;

/** Sends orders of one piece, each with a number of its own, to all processes at once. The latencies are in microseconds. */
export async function sendOrders(load: Load): Promise<{ result: LoadResult; latency: Histogram }> {
  const seen = { accepted: 0, outOfStock: 0, busy: 0, errors: 0 };
  const latency = build();
  const start = performance.now();
  let end = start;
  const { orders, concurrency } = load;
  // With fewer orders under way than there are shops, some shops have nothing to do.
  const shops = load.shops.slice(0, Math.min(orders, concurrency));
  const amounts = inShares(orders, shops.length);
  const connections = inShares(Math.min(concurrency, orders), shops.length);
  // The generator itself ends a little later.
  const timed = {
    ...load,
    onAnswer: (answer: Answer) => {
      end = performance.now();
      load.onAnswer(answer);
    },
  };
  await Promise.all(
    shops.map(async (shop, index) => {
      await cannon(timed, shop, amounts[index] as number, connections[index] as number, seen, latency);
    }),
  );
  const seconds = (end - start) / 1_000;
  const unanswered = orders - seen.accepted - seen.outOfStock - seen.busy - seen.errors;
  const result = {
    ...seen,
    errors: seen.errors + Math.max(0, unanswered),
    ordersPerSecond: orders / seconds,
    p50: latency.getValueAtPercentile(50) / 1_000,
    p99: latency.getValueAtPercentile(99) / 1_000,
  };
  return { result, latency };
}

async function cannon(
  { strategy, sku, onAnswer }: Load,
  shop: Shop,
  amount: number,
  connections: number,
  seen: Record<Answer, number>,
  latency: Histogram,
): Promise<void> {
  let sent = 0;
  const options: autocannon.Options = {
    url: `${shop.url}/products/${sku}/deduct?strategy=${strategy}`,
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    amount,
    connections,
    timeout: TIMEOUT_SECONDS,
    requests: [
      {
        setupRequest: (request) => {
          sent += 1;
          return { ...request, body: JSON.stringify({ quantity: 1, orderId: `${sku}-${shop.process.pid}-${sent}` }) };
        },
        onResponse: (status, body) => {
          const answer = classify(status, body);
          seen[answer] += 1;
          onAnswer(answer);
        },
      },
    ],
  };
  await fire(options, latency);
}

export type Answer = 'accepted' | 'outOfStock' | 'busy' | 'errors';

function classify(status: number, body: string): Answer {
  if (status === 201) return 'accepted';
  if (status === 423) return 'busy';
  if (status !== 409) return 'errors';
  return body.includes('"OUT_OF_STOCK"') ? 'outOfStock' : 'busy';
}
