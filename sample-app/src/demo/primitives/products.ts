import type pg from 'pg';
import { putOnSale } from '../put-on-sale.js';
import type { Shop } from '../shop-process.js';

/** What the database says about the orders for the products of one trial. */
export interface OrderCounts {
  /** Orders, of one piece each. */
  readonly orders: number;
  /** How often the shop began to place one. */
  readonly runs: number;
  /** Of all products together. */
  readonly stockLeft: number;
}

/** Creates products, and answers their names: several, so that orders do not wait for the lock of one. */
export async function putProductsOnSale(
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

export async function orderCounts(database: pg.Pool, trial: string): Promise<OrderCounts> {
  const { rows } = await database.query<OrderCounts>(
    `SELECT (SELECT count(*)::int FROM orders WHERE sku LIKE $1) AS orders,
            (SELECT count(*)::int FROM order_runs WHERE sku LIKE $1) AS runs,
            (SELECT sum(stock)::int FROM products WHERE sku LIKE $1) AS "stockLeft"`,
    [`${trial}-%`],
  );
  return rows[0] as OrderCounts;
}
