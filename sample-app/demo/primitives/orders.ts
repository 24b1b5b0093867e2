import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Environment } from '../environment.js';
import { ORDER_LIMIT, PAYMENTS_AT_ONCE } from '../shop-facts.js';
import { call, putOnSale, type Answered, type Shop } from '../shop.js';
import { failuresAmong, type PrimitiveResult } from '../verdict.js';

// Trials of what the shop promises of its orders: each is placed once, also where a process dies; a customer orders no
// more often than the limit allows; and no more payments run at once than the provider accepts.

/** How often an order that failed is sent again at most, and milliseconds before that. */
const MOST_REPEATS = 10;
const PAUSE = 200;

/** What the database says about the orders for the products of one trial. */
interface OrderCounts {
  /** Orders, of one piece each. */
  readonly orders: number;
  /** How often the shop began to place one. */
  readonly runs: number;
  /** Of all products together. */
  readonly stockLeft: number;
}

/** Each order is sent some times, at once and to all processes. */
const DUPLICATES = { trial: 'duplicate', orders: 20, times: 6 };

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
  const { trial, orders: ordered, times } = DUPLICATES;
  const skuOf = await putProductsOnSale(shops, trial, ordered, times);
  const answers = await Promise.all(
    Array.from({ length: ordered }, (_, index) => {
      const placed = { orderId: `${trial}-${index}`, sku: skuOf(index), customer: `${trial}-${index}` };
      return Promise.all(
        Array.from({ length: times }, (_each, time) => order(shops[(index + time) % shops.length] as Shop, placed)),
      );
    }),
  );
  return {
    ordered,
    times,
    stock: ordered * times,
    accepted: answers.flat().filter(({ status }) => status === 201).length,
    failed: answers.flat().reduce((sum, { failed }) => sum + failed, 0),
    differing: answers.filter((each) => new Set(each.map(({ body }) => body)).size > 1).length,
    payments: provider.callsFor(`${trial}-`),
    ...(await orderCounts(database, trial)),
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

const KILLED = { trial: 'killed', stock: 10 };

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
  const { trial, stock } = KILLED;
  const { database, provider } = environment;
  const skuOf = await putProductsOnSale([victim], trial, 1, stock);
  const placed = { orderId: trial, sku: skuOf(0), customer: trial };
  const paying = provider.hold(placed.orderId);
  const unanswered = order(victim, placed);
  await Promise.race([paying, unanswered]);
  await victim.process.kill();
  await unanswered.catch(() => {});
  await environment.replace(victim);
  const { status } = await order(environment.shops[0] as Shop, placed);
  const charges = provider.chargesFor(placed.orderId);
  return { stock, status, charges, ...(await orderCounts(database, trial)) };
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

const EAGER = { trial: 'eager', requests: 60, products: 20 };

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
  const { trial, requests, products } = EAGER;
  const skuOf = await putProductsOnSale(shops, trial, products, requests);
  const start = performance.now();
  const answers = await Promise.all(
    Array.from({ length: requests }, (_, index) =>
      order(shops[index % shops.length] as Shop, {
        orderId: `${trial}-${index}`,
        sku: skuOf(index),
        customer: trial,
      }),
    ),
  );
  const took = performance.now() - start;
  const refusals = answers.filter(({ status }) => status === 429);
  const withoutHeaders =
    refusals.filter(({ headers }) => !headers.has('retry-after')).length +
    answers.filter(({ headers }) => !headers.has('ratelimit') || !headers.has('ratelimit-policy')).length;
  const { orders } = await orderCounts(database, trial);
  const failed = answers.reduce((sum, each) => sum + each.failed, 0);
  return { requests, took, refused: refusals.length, failed, withoutHeaders, orders };
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

/** `patience`: milliseconds in which a payment beyond the limit would arrive. */
const PAYMENTS = { trial: 'payment', orders: 30, products: 15, patience: 750 };

export interface PaymentsAtOnce {
  readonly ordered: number;
  readonly accepted: number;
  /** What the payment provider counted. */
  readonly mostAtOnce: number;
  readonly charges: number;
}

/** Places orders at once, in all processes, while the payment provider counts. */
export async function payAtOnce({ shops, provider }: Environment): Promise<PaymentsAtOnce> {
  const { trial, orders: ordered, products, patience } = PAYMENTS;
  const skuOf = await putProductsOnSale(shops, trial, products, ordered);
  provider.gather(PAYMENTS_AT_ONCE, patience);
  const answers = await Promise.all(
    Array.from({ length: ordered }, (_, index) => {
      const orderId = `${trial}-${index}`;
      return order(shops[index % shops.length] as Shop, { orderId, sku: skuOf(index), customer: orderId });
    }),
  );
  return {
    ordered,
    accepted: answers.filter(({ status }) => status === 201).length,
    mostAtOnce: provider.mostAtOnce,
    charges: provider.chargesFor(`${trial}-`),
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

/** Creates products, and answers their names: several, so that orders do not wait for the lock of one. */
async function putProductsOnSale(
  shops: readonly Shop[],
  trial: string,
  count: number,
  stock: number,
): Promise<(index: number) => string> {
  const skuOf = (index: number) => `${trial}-${index % count}`;
  const indices = Array.from({ length: count }, (_, index) => index);
  await Promise.all(indices.map((index) => putOnSale(shops[index % shops.length] as Shop, skuOf(index), stock)));
  return skuOf;
}

async function orderCounts(database: pg.Pool, trial: string): Promise<OrderCounts> {
  const { rows } = await database.query<OrderCounts>(
    `SELECT (SELECT count(*)::int FROM orders WHERE sku LIKE $1) AS orders,
            (SELECT count(*)::int FROM order_runs WHERE sku LIKE $1) AS runs,
            (SELECT sum(stock)::int FROM products WHERE sku LIKE $1) AS "stockLeft"`,
    [`${trial}-%`],
  );
  return rows[0] as OrderCounts;
}

interface PlacedOrder {
  readonly orderId: string;
  readonly sku: string;
  readonly customer: string;
}

/** The last answer to an order, and how many answers before it were errors of the shop. */
interface OrderAnswered extends Answered {
  readonly failed: number;
}

/** Orders one piece. An answer that the shop is busy or failed makes the same order be sent again, as it asks for. */
async function order(shop: Shop, placed: PlacedOrder): Promise<OrderAnswered> {
  for (let failed = 0; ; failed++) {
    const answered = await call(shop, 'POST', '/orders', { ...placed, quantity: 1 });
    const settled = answered.status < 500 && answered.status !== 423;
    if (settled || failed === MOST_REPEATS) return { ...answered, failed };
    await sleep(PAUSE);
  }
}
