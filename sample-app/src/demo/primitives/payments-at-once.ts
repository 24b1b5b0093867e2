import { PAYMENTS_AT_ONCE } from '../../payments/payments.service.js';
import type { Environment } from '../environment.js';
import type { Shop } from '../shop-process.js';
import { failuresAmong, type PrimitiveResult } from './primitive-result.js';
import { putProductsOnSale } from './products.js';
import { order } from './shop-calls.js';

const TRIAL = 'payment';
const ORDERS = 30;
const PRODUCTS = 15;
/** Milliseconds in which a payment beyond the limit would arrive. */
const PATIENCE = 750;

export interface PaymentsAtOnce {
  readonly ordered: number;
  readonly accepted: number;
  /** What the payment provider counted. */
  readonly mostAtOnce: number;
  readonly charges: number;
}

/** Places orders at once, in all processes, while the payment provider counts. */
export async function payAtOnce({ shops, provider }: Environment): Promise<PaymentsAtOnce> {
  const skuOf = await putProductsOnSale(shops, TRIAL, PRODUCTS, ORDERS);
  provider.gather(PAYMENTS_AT_ONCE, PATIENCE);
  const answers = await Promise.all(
    Array.from({ length: ORDERS }, (_, index) => {
      const orderId = `${TRIAL}-${index}`;
      return order(shops[index % shops.length] as Shop, { orderId, sku: skuOf(index), customer: orderId });
    }),
  );
  return {
    ordered: ORDERS,
    accepted: answers.filter(({ status }) => status === 201).length,
    mostAtOnce: provider.mostAtOnce,
    charges: provider.chargesFor(`${TRIAL}-`),
  };
}

export function paymentsResult({ ordered, accepted, mostAtOnce, charges }: PaymentsAtOnce): PrimitiveResult {
  return {
    primitive: 'semaphore',
    tried: `${ordered} payments, ${PAYMENTS_AT_ONCE} allowed at once`,
    happened: `${accepted} orders accepted`,
    evidence: `the provider saw ${mostAtOnce} at once, and charged ${charges}`,
    failures: failuresAmong(
      [mostAtOnce <= PAYMENTS_AT_ONCE, `${mostAtOnce} payments at once, where ${PAYMENTS_AT_ONCE} are allowed`],
      [mostAtOnce >= PAYMENTS_AT_ONCE, `only ${mostAtOnce} of ${PAYMENTS_AT_ONCE} payments at once`],
      [accepted === ordered && charges === ordered, `${accepted} accepted and ${charges} charged of ${ordered} orders`],
    ),
  };
}
