import { Inject, Injectable, NotFoundException } from '@nestjs/common';
import { Database, type Sql } from '../database/database.js';
import type { OrderDto, ReceiptDto } from './deduction.dto.js';
import { OrderMismatchException } from './deduction.exceptions.js';
import type { Strategy } from './strategy.js';

/** Another request wrote the order between our look and our insert. */
export class OrderExistsError extends Error {}

/** The accepted orders: one row each. */
@Injectable()
export class OrderBook {
  constructor(@Inject(Database) private readonly database: Database) {}

  /** The receipt of an order that was accepted before. */
  async find(sku: string, { orderId, quantity }: OrderDto): Promise<ReceiptDto | undefined> {
    const { rows } = await this.database.query<ReceiptDto>(
      'SELECT order_id AS "orderId", sku, quantity, strategy, stock FROM orders WHERE order_id = $1',
      [orderId],
    );
    const receipt = rows[0];
    if (receipt && (receipt.sku !== sku || receipt.quantity !== quantity)) throw new OrderMismatchException(orderId);
    return receipt;
  }

  /**
   * Writes the order and the stock left after it, in the transaction that takes the pieces out.
   *
   * @throws OrderExistsError when the order exists already; the transaction then undoes what it took
   */
  async add(sql: Sql, receipt: ReceiptDto): Promise<ReceiptDto> {
    const { orderId, sku, quantity, strategy, stock } = receipt;
    const { rowCount } = await sql.query(
      'INSERT INTO orders (order_id, sku, quantity, strategy, stock) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING',
      [orderId, sku, quantity, strategy, stock],
    );
    if (rowCount === 0) throw new OrderExistsError(orderId);
    return receipt;
  }
}

export function receiptOf(strategy: Strategy, sku: string, order: OrderDto, stock: number): ReceiptDto {
  return { orderId: order.orderId, sku, quantity: order.quantity, strategy, stock };
}

/** The row that a strategy read. */
export function found<Row>(sku: string, rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new NotFoundException(`No product ${sku}`);
  return row;
}
