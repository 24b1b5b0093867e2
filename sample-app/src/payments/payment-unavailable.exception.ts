import { HttpException, HttpStatus } from '@nestjs/common';

/**
 * The payment provider is down or too slow. It is unknown whether the order is paid: the same order can be sent again.
 */
export class PaymentUnavailableException extends HttpException {
  constructor(cause: unknown) {
    const status = HttpStatus.SERVICE_UNAVAILABLE;
    const message = 'The payment provider does not answer. Send the same order again.';
    super({ statusCode: status, code: 'PAYMENT_UNAVAILABLE', message }, status, { cause });
  }
}
