import type pg from 'pg';
import type { LoadResult } from './load.js';

/** What the database says was sold, and whether that is possible. */
export interface Audit {
  /** Rows of orders. */
  readonly orders: number;
  /** Pieces in them. */
  readonly sold: number;
  readonly stockLeft: number;
  /** Pieces sold in excess of the stock, or missing from its count. */
  readonly oversoldBy: number;
  /**
   * I1: no more was sold than there was. I2: the stock left is the initial stock less what was sold. I3: every accepted
   * order has a row, and every row an accepted order, except for failed orders, whose clients cannot know.
   */
  readonly invariants: { readonly I1: boolean; readonly I2: boolean; readonly I3: boolean };
}

export async function audit(
  database: pg.Pool,
  sku: string,
  stockAtStart: number,
  { accepted, errors }: LoadResult,
): Promise<Audit> {
  const { rows } = await database.query<{ orders: string; sold: string; stock: number }>(
    `SELECT stock, (SELECT count(*) FROM orders o WHERE o.sku = p.sku) AS orders,
            (SELECT coalesce(sum(quantity), 0) FROM orders o WHERE o.sku = p.sku) AS sold
     FROM products p WHERE sku = $1`,
    [sku],
  );
  const row = rows[0];
  if (!row) throw new Error(`Product ${sku} vanished`);
  const [orders, sold, stockLeft] = [Number(row.orders), Number(row.sold), row.stock];
  return {
    orders,
    sold,
    stockLeft,
    oversoldBy: Math.max(0, sold - stockAtStart),
    invariants: {
      I1: sold <= stockAtStart,
      I2: stockLeft === stockAtStart - sold,
      I3: accepted <= orders && orders <= accepted + errors,
    },
  };
}

export async function stockOf(database: pg.Pool, sku: string): Promise<number> {
  const { rows } = await database.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
  if (!rows[0]) throw new Error(`Product ${sku} vanished`);
  return rows[0].stock;
}

export function holds({ invariants }: Audit): boolean {
  return invariants.I1 && invariants.I2 && invariants.I3;
}
