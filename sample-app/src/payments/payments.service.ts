import { HttpStatus, Inject, Injectable } from '@nestjs/common';
import { Semaphore } from 'nest-redis-lock';
import { ShopException } from '../http/error-body.js';
import { PRIMITIVE_BACKEND, SETTINGS, type Settings } from '../settings.js';

/** How many payments the provider accepts at once, from all processes of the shop together. */
const PAYMENTS_AT_ONCE = 5;

/** Milliseconds until the provider must have answered. */
const TIME_LIMIT = 20_000;

@Injectable()
export class PaymentsService {
  constructor(@Inject(SETTINGS) private readonly settings: Settings) {}

  /** Resolves to the number of the payment, or to null where the shop has no provider. */
  async pay(orderId: string): Promise<string | null> {
    const { paymentUrl, without } = this.settings;
    if (paymentUrl === undefined) return null;
    return without?.has('semaphore') ? this.charge(paymentUrl, orderId) : this.chargeInTurn(paymentUrl, orderId);
  }

  @Semaphore('payments', { permits: PAYMENTS_AT_ONCE, ttl: '5s', wait: '15s', backend: PRIMITIVE_BACKEND })
  async chargeInTurn(paymentUrl: string, orderId: string): Promise<string> {
    return this.charge(paymentUrl, orderId);
  }

  private async charge(paymentUrl: string, orderId: string): Promise<string> {
    try {
      const response = await fetch(paymentUrl, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(orderId) },
        signal: AbortSignal.timeout(TIME_LIMIT),
      });
      const { payment } = (await response.json()) as { payment: string };
      return payment;
    } catch (error) {
      throw new PaymentUnavailableException(error);
    }
  }
}

/**
 * The payment provider is down or too slow. It is unknown whether the order is paid: the same order can be sent again.
 */
class PaymentUnavailableException extends ShopException {
  constructor(cause: unknown) {
    const message = 'The payment provider does not answer. Send the same order again.';
    super(HttpStatus.SERVICE_UNAVAILABLE, 'PAYMENT_UNAVAILABLE', message, cause);
  }
}
