import type { Environment } from '../environment.js';
import type { Shop } from '../shop-process.js';
import { failuresAmong, type PrimitiveResult } from './primitive-result.js';
import { orderCounts, putProductsOnSale, type OrderCounts } from './products.js';
import { order } from './shop-calls.js';

const TRIAL = 'duplicate';
const ORDERS = 20;
/** How often each order is sent, at once and to all processes. */
const TIMES = 6;

export interface DuplicateOrders extends OrderCounts {
  readonly ordered: number;
  readonly times: number;
  /** Of all products together, before the orders. */
  readonly stock: number;
  readonly accepted: number;
  /** Requests that failed and were sent again: each of them may have run. */
  readonly failed: number;
  /** Orders whose repeats got another answer. */
  readonly differing: number;
  /** Calls at the payment provider. */
  readonly payments: number;
}

/** Sends each order several times at once, to different processes. */
export async function sendDuplicates({ shops, database, provider }: Environment): Promise<DuplicateOrders> {
  const skuOf = await putProductsOnSale(shops, TRIAL, ORDERS, TIMES);
  const answers = await Promise.all(
    Array.from({ length: ORDERS }, (_, index) => {
      const placed = { orderId: `${TRIAL}-${index}`, sku: skuOf(index), customer: `${TRIAL}-${index}` };
      return Promise.all(
        Array.from({ length: TIMES }, (_each, time) => order(shops[(index + time) % shops.length] as Shop, placed)),
      );
    }),
  );
  return {
    ordered: ORDERS,
    times: TIMES,
    stock: ORDERS * TIMES,
    accepted: answers.flat().filter(({ status }) => status === 201).length,
    failed: answers.flat().reduce((sum, { failed }) => sum + failed, 0),
    differing: answers.filter((each) => new Set(each.map(({ body }) => body)).size > 1).length,
    payments: provider.callsFor(`${TRIAL}-`),
    ...(await orderCounts(database, TRIAL)),
  };
}

export function duplicatesResult(counted: DuplicateOrders): PrimitiveResult {
  const { ordered, times, stock, accepted, failed, differing, runs, orders, stockLeft, payments } = counted;
  const taken = stock - stockLeft;
  return {
    primitive: 'once',
    tried: `${ordered} orders, each sent ${times} times at once`,
    happened: `${accepted} accepted, ${differing} with differing answers`,
    evidence: `${runs} runs, ${orders} orders, ${taken} pieces sold, ${payments} payments`,
    failures: failuresAmong(
      [accepted === ordered * times, `${ordered * times - accepted} of ${ordered * times} requests were refused`],
      [differing === 0, `${differing} orders got differing answers`],
      [runs >= ordered && runs <= ordered + failed, `${runs} runs of ${ordered} orders`],
      [orders === ordered && taken === ordered, `${orders} orders and ${taken} pieces sold for ${ordered} orders`],
      [payments >= ordered && payments <= runs, `${payments} payments of ${ordered} orders`],
    ),
  };
}
