import type { Environment } from '../environment.js';
import type { Shop } from '../shop-process.js';
import { failuresAmong, type PrimitiveResult } from './primitive-result.js';
import { orderCounts, putProductsOnSale, type OrderCounts } from './products.js';
import { order } from './shop-calls.js';

const TRIAL = 'killed';
const STOCK = 10;

export interface KilledOrder extends OrderCounts {
  readonly stock: number;
  /** The status of the repeat. */
  readonly status: number;
  /** Orders that the payment provider charged. */
  readonly charges: number;
}

/**
 * Kills the process that works on an order after it took the piece and while it is paid, and sends the same order to
 * another process.
 */
export async function killInMidOrder(environment: Environment, victim: Shop): Promise<KilledOrder> {
  const { database, provider } = environment;
  const skuOf = await putProductsOnSale([victim], TRIAL, 1, STOCK);
  const placed = { orderId: TRIAL, sku: skuOf(0), customer: TRIAL };
  const paying = provider.hold(placed.orderId);
  const unanswered = order(victim, placed);
  await Promise.race([paying, unanswered]);
  await victim.process.kill();
  await unanswered.catch(() => {});
  await environment.replace(victim);
  const { status } = await order(environment.shops[0] as Shop, placed);
  const charges = provider.chargesFor(placed.orderId);
  return { stock: STOCK, status, charges, ...(await orderCounts(database, TRIAL)) };
}

export function killedOrderResult({ stock, status, runs, orders, stockLeft, charges }: KilledOrder): PrimitiveResult {
  const taken = stock - stockLeft;
  return {
    primitive: 'once',
    tried: 'an order, sent again after its process was killed in the middle of it',
    happened: `the repeat was answered with ${status}`,
    evidence: `${runs} runs, ${orders} order, ${taken} piece sold, ${charges} charged`,
    failures: failuresAmong(
      [status === 201, `the repeat of a killed order was answered with ${status}`],
      [runs >= 2, 'no second run after the process was killed'],
      [orders === 1 && taken === 1, `${orders} orders and ${taken} pieces sold for one order`],
      [charges === 1, `${charges} charges for one order`],
    ),
  };
}
