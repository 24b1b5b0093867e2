import { Inject, Injectable } from '@nestjs/common';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

/** The database locks the row for the transaction. Every waiting request keeps a connection of the pool busy. */
@Injectable()
export class PessimisticDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
  ) {}

  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    return this.database.transaction(async (sql) => {
      const { rows } = await sql.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1 FOR UPDATE', [
        sku,
      ]);
      const { stock } = found(sku, rows);
      if (stock < order.quantity) throw new OutOfStockException(sku, stock);
      const left = stock - order.quantity;
      await sql.query('UPDATE products SET stock = $2 WHERE sku = $1', [sku, left]);
      return this.orders.add(sql, receiptOf('pessimistic', sku, order, left));
    });
  }
}
