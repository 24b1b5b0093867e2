import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { ContendedException, OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

const TRIES = 50;
const LONGEST_PAUSE = 50;

/** Writes only if nobody wrote since the read, otherwise begins again. Good if conflicts are rare. */
@Injectable()
export class OptimisticDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
  ) {}

  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    for (let attempt = 1; attempt <= TRIES; attempt++) {
      const receipt = await this.tryOnce(sku, order);
      if (receipt) return receipt;
      await sleep(Math.random() * Math.min(LONGEST_PAUSE, 2 ** attempt));
    }
    throw new ContendedException(sku);
  }

  private async tryOnce(sku: string, order: OrderDto): Promise<ReceiptDto | undefined> {
    const { rows } = await this.database.query<{ stock: number; version: number }>(
      'SELECT stock, version FROM products WHERE sku = $1',
      [sku],
    );
    const { stock, version } = found(sku, rows);
    if (stock < order.quantity) throw new OutOfStockException(sku, stock);
    const left = stock - order.quantity;
    return this.database.transaction(async (sql) => {
      const { rowCount } = await sql.query(
        'UPDATE products SET stock = $2, version = version + 1 WHERE sku = $1 AND version = $3',
        [sku, left, version],
      );
      return rowCount === 0 ? undefined : this.orders.add(sql, receiptOf('optimistic', sku, order, left));
    });
  }
}
