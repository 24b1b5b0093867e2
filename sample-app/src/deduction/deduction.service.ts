import { HttpException, HttpStatus, Inject, Injectable } from '@nestjs/common';
import { ProductsService } from '../products/products.service.js';
import type { OrderDto, ReceiptDto } from './deduction.dto.js';
import { OrderBook, OrderExistsError } from './order-book.js';
import { AtomicDeduction } from './strategies/atomic.deduction.js';
import { FencedDeduction } from './strategies/fenced.deduction.js';
import { LockDeduction } from './strategies/lock.deduction.js';
import { NoneDeduction } from './strategies/none.deduction.js';
import { OptimisticDeduction } from './strategies/optimistic.deduction.js';
import { PessimisticDeduction } from './strategies/pessimistic.deduction.js';
import { SetnxDeduction, SetnxExpiryDeduction } from './strategies/setnx.deduction.js';
import type { DeductionStrategy, Strategy } from './strategy.js';

/** Accepts an order once, by the strategy asked for. */
@Injectable()
export class DeductionService {
  private readonly strategies: Record<Strategy, DeductionStrategy>;

  constructor(
    @Inject(OrderBook) private readonly orders: OrderBook,
    @Inject(ProductsService) private readonly products: ProductsService,
    @Inject(NoneDeduction) none: NoneDeduction,
    @Inject(LockDeduction) lock: LockDeduction,
    @Inject(FencedDeduction) fenced: FencedDeduction,
    @Inject(PessimisticDeduction) pessimistic: PessimisticDeduction,
    @Inject(OptimisticDeduction) optimistic: OptimisticDeduction,
    @Inject(AtomicDeduction) atomic: AtomicDeduction,
    @Inject(SetnxDeduction) setnx: SetnxDeduction,
    @Inject(SetnxExpiryDeduction) setnxExpiry: SetnxExpiryDeduction,
  ) {
    this.strategies = { none, lock, fenced, pessimistic, optimistic, atomic, setnx, 'setnx-expiry': setnxExpiry };
  }

  async deduct(strategy: Strategy, sku: string, order: OrderDto): Promise<ReceiptDto> {
    let changed = true;
    try {
      return await this.accept(strategy, sku, order);
    } catch (error) {
      changed = !isRefusal(error);
      throw error;
    } finally {
      // Also for an order that was accepted before: the process that accepted it may have died before this line.
      if (changed) await this.products.changed(sku);
    }
  }

  private async accept(strategy: Strategy, sku: string, order: OrderDto): Promise<ReceiptDto> {
    const accepted = await this.orders.find(sku, order);
    if (accepted) return accepted;
    try {
      return await this.strategies[strategy].deduct(sku, order);
    } catch (error) {
      // The same order was sent twice at once: the other request was accepted meanwhile (and may have taken the last
      // piece).
      const meanwhile = await this.orders.find(sku, order);
      if (meanwhile) return meanwhile;
      throw error instanceof OrderExistsError ? new Error(`Order ${order.orderId} vanished`) : error;
    }
  }
}

/** Whether the order was refused and nothing was done. After any other error, the order may have been carried out. */
function isRefusal(error: unknown): boolean {
  return error instanceof HttpException && error.getStatus() < HttpStatus.INTERNAL_SERVER_ERROR.valueOf();
}
