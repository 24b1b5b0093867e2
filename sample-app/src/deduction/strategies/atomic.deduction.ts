import { Inject, Injectable } from '@nestjs/common';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

/** Checks and writes in one statement: the best way if everything to decide fits into one statement. */
@Injectable()
export class AtomicDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
  ) {}

  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    return this.database.transaction(async (sql) => {
      const { rows } = await sql.query<{ stock: number }>(
        'UPDATE products SET stock = stock - $2 WHERE sku = $1 AND stock >= $2 RETURNING stock',
        [sku, order.quantity],
      );
      if (rows[0]) return this.orders.add(sql, receiptOf('atomic', sku, order, rows[0].stock));
      const product = await sql.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
      throw new OutOfStockException(sku, found(sku, product.rows).stock);
    });
  }
}
