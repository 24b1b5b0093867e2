import { ORDER_LIMIT } from '../../orders/order-limit.js';
import type { Environment } from '../environment.js';
import type { Shop } from '../shop-process.js';
import { failuresAmong, type PrimitiveResult } from './primitive-result.js';
import { orderCounts, putProductsOnSale } from './products.js';
import { order } from './shop-calls.js';

const TRIAL = 'eager';
const REQUESTS = 60;
const PRODUCTS = 20;

export interface EagerCustomer {
  readonly requests: number;
  /** Milliseconds from before the first request to after the last answer. */
  readonly took: number;
  readonly refused: number;
  /** Requests that failed and were sent again: each of them may have counted. */
  readonly failed: number;
  /** Refusals without `Retry-After`, and answers without `RateLimit`. */
  readonly withoutHeaders: number;
  /** Orders in the database. */
  readonly orders: number;
}

/** Sends more orders of one customer than the shop allows, to all processes. */
export async function orderEagerly({ shops, database }: Environment): Promise<EagerCustomer> {
  const skuOf = await putProductsOnSale(shops, TRIAL, PRODUCTS, REQUESTS);
  const start = performance.now();
  const answers = await Promise.all(
    Array.from({ length: REQUESTS }, (_, index) =>
      order(shops[index % shops.length] as Shop, { orderId: `${TRIAL}-${index}`, sku: skuOf(index), customer: TRIAL }),
    ),
  );
  const took = performance.now() - start;
  const refusals = answers.filter(({ status }) => status === 429);
  const withoutHeaders =
    refusals.filter(({ headers }) => !headers.has('retry-after')).length +
    answers.filter(({ headers }) => !headers.has('ratelimit') || !headers.has('ratelimit-policy')).length;
  const { orders } = await orderCounts(database, TRIAL);
  const failed = answers.reduce((sum, each) => sum + each.failed, 0);
  return { requests: REQUESTS, took, refused: refusals.length, failed, withoutHeaders, orders };
}

export function eagerCustomerResult(counted: EagerCustomer): PrimitiveResult {
  const { requests, took, refused, failed, withoutHeaders, orders } = counted;
  const { limit, per } = ORDER_LIMIT;
  const allowed = limit + Math.ceil((took * limit) / per);
  return {
    primitive: 'rate-limit',
    tried: `${requests} orders of one customer in ${(took / 1_000).toFixed(1)} s, allowed ${allowed}`,
    happened: `${refused} refused (429)`,
    evidence: `${orders} orders`,
    failures: failuresAmong(
      [orders <= allowed, `${orders} orders of one customer, where ${allowed} are allowed`],
      [orders + failed >= limit, `${orders} orders of one customer, where at least ${limit} are allowed`],
      [refused + orders >= requests, `${requests - refused - orders} of ${requests} orders failed otherwise`],
      [withoutHeaders === 0, `${withoutHeaders} answers told the customer no limit`],
    ),
  };
}
