import { Inject, Injectable } from '@nestjs/common';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy, Strategy } from '../strategy.js';

/** Reads, checks and writes. Two requests that read the same stock both sell the same piece. */
@Injectable()
export class NoneDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
  ) {}

  async deduct(sku: string, order: OrderDto, strategy: Strategy = 'none'): Promise<ReceiptDto> {
    const { rows } = await this.database.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
    const { stock } = found(sku, rows);
    if (stock < order.quantity) throw new OutOfStockException(sku, stock);
    const left = stock - order.quantity;
    return this.database.transaction(async (sql) => {
      await sql.query('UPDATE products SET stock = $2 WHERE sku = $1', [sku, left]);
      return this.orders.add(sql, receiptOf(strategy, sku, order, left));
    });
  }
}
