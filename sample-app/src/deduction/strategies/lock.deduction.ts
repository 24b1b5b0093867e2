import { Inject, Injectable } from '@nestjs/common';
import { DistributedLock } from 'nest-redis-lock';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

/**
 * The same read, check and write, one request at a time for each product, over all processes of the shop.
 *
 * The lock is outside and the transaction inside: were it the other way round, the next request would read the stock
 * before this one is committed.
 */
@Injectable()
export class LockDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
  ) {}

  @DistributedLock('stock:<0>')
  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    const { rows } = await this.database.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
    const { stock } = found(sku, rows);
    if (stock < order.quantity) throw new OutOfStockException(sku, stock);
    const left = stock - order.quantity;
    return this.database.transaction(async (sql) => {
      await sql.query('UPDATE products SET stock = $2 WHERE sku = $1', [sku, left]);
      return this.orders.add(sql, receiptOf('lock', sku, order, left));
    });
  }
}
