import { Inject, Injectable } from '@nestjs/common';
import { DistributedLock, LockService, type Lock } from 'nest-redis-lock';
import { Database } from '../../database/database.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { OutOfStockException } from '../deduction.exceptions.js';
import { found, OrderBook, receiptOf } from '../order-book.js';
import type { DeductionStrategy } from '../strategy.js';

/**
 * The same read, check and write, but one request at a time for each product, over all processes of the shop.
 *
 * The lock is outside and the transaction inside: otherwise the next request would read the stock before this one is
 * committed.
 *
 * A process that stands still for longer than its lease (a suspended machine, a long garbage collection) loses the lock
 * without noticing, and continues with an outdated stock. `assertHeld` then throws, and the transaction is undone; the
 * check right before COMMIT decides. One window remains: a standstill that begins between this check and the send of
 * the COMMIT, which is one packet, and lasts until the lease has ended. `FencedDeduction` closes it as well.
 */
@Injectable()
export class LockDeduction implements DeductionStrategy {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(OrderBook) private readonly orders: OrderBook,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  @DistributedLock('stock:<0>')
  async deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    const lock = this.locks.current() as Lock;
    const { rows } = await this.database.query<{ stock: number }>('SELECT stock FROM products WHERE sku = $1', [sku]);
    const { stock } = found(sku, rows);
    if (stock < order.quantity) throw new OutOfStockException(sku, stock);
    const left = stock - order.quantity;
    lock.assertHeld(); // before the transaction, which may wait for a connection
    return this.database.transaction(async (sql) => {
      lock.assertHeld(); // before the write
      await sql.query('UPDATE products SET stock = $2 WHERE sku = $1', [sku, left]);
      const receipt = await this.orders.add(sql, receiptOf('lock', sku, order, left));
      lock.assertHeld(); // before the COMMIT, which follows at once
      return receipt;
    });
  }
}
