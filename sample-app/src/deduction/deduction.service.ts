import { Inject, Injectable } from '@nestjs/common';
import type { OrderDto, ReceiptDto } from './deduction.dto.js';
import { OrderBook, OrderExistsError } from './order-book.js';
import { AtomicDeduction } from './strategies/atomic.deduction.js';
import { FencedDeduction } from './strategies/fenced.deduction.js';
import { LockDeduction } from './strategies/lock.deduction.js';
import { NoneDeduction } from './strategies/none.deduction.js';
import { OptimisticDeduction } from './strategies/optimistic.deduction.js';
import { PessimisticDeduction } from './strategies/pessimistic.deduction.js';
import type { DeductionStrategy, Strategy } from './strategy.js';

/** Accepts an order once, by the strategy asked for. */
@Injectable()
export class DeductionService {
  private readonly strategies: Record<Strategy, DeductionStrategy>;

  constructor(
    @Inject(OrderBook) private readonly orders: OrderBook,
    @Inject(NoneDeduction) none: NoneDeduction,
    @Inject(LockDeduction) lock: LockDeduction,
    @Inject(FencedDeduction) fenced: FencedDeduction,
    @Inject(PessimisticDeduction) pessimistic: PessimisticDeduction,
    @Inject(OptimisticDeduction) optimistic: OptimisticDeduction,
    @Inject(AtomicDeduction) atomic: AtomicDeduction,
  ) {
    this.strategies = { none, lock, fenced, pessimistic, optimistic, atomic };
  }

  async deduct(strategy: Strategy, sku: string, order: OrderDto): Promise<ReceiptDto> {
    const accepted = await this.orders.find(sku, order);
    if (accepted) return accepted;
    try {
      return await this.strategies[strategy].deduct(sku, order);
    } catch (error) {
      // Sent twice at once: the other one was accepted while this one was deciding (and may have taken the last piece).
      const meanwhile = await this.orders.find(sku, order);
      if (meanwhile) return meanwhile;
      throw error instanceof OrderExistsError ? new Error(`Order ${order.orderId} vanished`) : error;
    }
  }
}
