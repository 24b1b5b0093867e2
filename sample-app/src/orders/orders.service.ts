import { Inject, Injectable } from '@nestjs/common';
import { Idempotent, IdempotencyService } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { DeductionService } from '../deduction/deduction.service.js';
import { PaymentsService } from '../payments/payments.service.js';
import { PRIMITIVE_BACKEND, SETTINGS, type Settings } from '../settings.js';
import type { PlacedOrderDto, PlaceOrderDto } from './order.dto.js';

/**
 * Places an order once for each number: repeats get the kept answer, in any process.
 *
 * A process can die after it took the pieces and before the answer is kept. The next attempt then takes none: the
 * number of an order is unique in the database, and is written in the transaction that takes the pieces. The payment
 * provider is sent the same number, and charges it once.
 */
@Injectable()
export class OrdersService {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(DeductionService) private readonly deductions: DeductionService,
    @Inject(PaymentsService) private readonly payments: PaymentsService,
    @Inject(IdempotencyService) private readonly idempotency: IdempotencyService,
    @Inject(SETTINGS) private readonly settings: Settings,
  ) {}

  place(order: PlaceOrderDto): Promise<PlacedOrderDto> {
    return this.settings.without?.has('once') ? this.run(order) : this.placeOnce(order);
  }

  @Idempotent('order:<0.orderId>', { fingerprint: '<#0>', lease: '5s', wait: '20s', backend: PRIMITIVE_BACKEND })
  async placeOnce(order: PlaceOrderDto): Promise<PlacedOrderDto> {
    return this.run(order);
  }

  private async run(order: PlaceOrderDto): Promise<PlacedOrderDto> {
    const { orderId, sku, quantity, customer } = order;
    await this.database.query(
      'INSERT INTO order_runs (order_id, sku, customer, attempt, process) VALUES ($1, $2, $3, $4, $5)',
      [orderId, sku, customer, this.idempotency.current()?.attempt ?? 1, process.pid],
    );
    const { stock } = await this.deductions.deduct('lock', sku, { orderId, quantity });
    return { orderId, sku, quantity, stock, payment: await this.payments.pay(orderId) };
  }
}
