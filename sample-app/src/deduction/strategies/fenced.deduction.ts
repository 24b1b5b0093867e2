import { Inject, Injectable } from '@nestjs/common';
import { DistributedLock, LockService, type Lock } from 'nest-redis-lock';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException, StaleFencingTokenException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

/**
 * Works under the lock, and lets the row itself refuse a holder whose lock has passed on: a holder that was paused
 * beyond its lease cannot know that before it writes.
 *
 * The read presents the token and raises the row's fence, and the write presents it again. If only the write checked
 * it, a stale write could slip in between the read and the write of the new holder.
 */
@Injectable()
export class FencedDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  @DistributedLock('stock:<0>')
  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    const { fencingToken } = this.locks.current() as Lock;
    const stock = await this.read(sku, fencingToken);
    if (stock < order.quantity) throw new OutOfStockException(sku, stock);
    return this.write(sku, order, stock - order.quantity, fencingToken);
  }

  async read(sku: string, fencingToken: number): Promise<number> {
    const { rows } = await this.database.query<{ stock: number }>(
      'UPDATE products SET fence = $2 WHERE sku = $1 AND fence <= $2 RETURNING stock',
      [sku, fencingToken],
    );
    if (rows[0]) return rows[0].stock;
    found(sku, (await this.database.query('SELECT FROM products WHERE sku = $1', [sku])).rows);
    throw new StaleFencingTokenException(sku, fencingToken);
  }

  async write(sku: string, order: OrderDto, left: number, fencingToken: number): Promise<ReceiptDto> {
    return this.database.transaction(async (sql) => {
      const { rowCount } = await sql.query('UPDATE products SET stock = $2 WHERE sku = $1 AND fence = $3', [
        sku,
        left,
        fencingToken,
      ]);
      if (rowCount === 0) throw new StaleFencingTokenException(sku, fencingToken);
      return this.orders.add(sql, receiptOf('fenced', sku, order, left));
    });
  }
}
