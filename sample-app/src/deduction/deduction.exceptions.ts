import { HttpException, HttpStatus } from '@nestjs/common';

/** Fewer pieces than ordered are left. */
export class OutOfStockException extends HttpException {
  constructor(sku: string, stock: number) {
    super({ statusCode: 409, code: 'OUT_OF_STOCK', message: `Only ${stock} of ${sku} left` }, HttpStatus.CONFLICT);
  }
}

/** Another request was faster each time: nothing happened, and the order may be sent again. */
export class ContendedException extends HttpException {
  constructor(sku: string) {
    super({ statusCode: 409, code: 'CONTENDED', message: `Too many orders for ${sku} at once` }, HttpStatus.CONFLICT);
  }
}

/** The lock had passed to a later holder: the row refuses the read or write of this one. */
export class StaleFencingTokenException extends HttpException {
  constructor(sku: string, fencingToken: number) {
    super(
      { statusCode: 409, code: 'STALE_FENCING_TOKEN', message: `${sku} has seen a token above ${fencingToken}` },
      HttpStatus.CONFLICT,
    );
  }
}

/** The number of an order belongs to another order. */
export class OrderMismatchException extends HttpException {
  constructor(orderId: string) {
    const message = `Order ${orderId} was placed before, with another content`;
    super({ statusCode: 422, code: 'ORDER_MISMATCH', message }, HttpStatus.UNPROCESSABLE_ENTITY);
  }
}
