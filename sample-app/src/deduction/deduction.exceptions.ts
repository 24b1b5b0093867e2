import { HttpStatus } from '@nestjs/common';
import { ShopException } from '../http/error-body.js';

/** Fewer pieces than ordered are left. */
export class OutOfStockException extends ShopException {
  constructor(sku: string, stock: number) {
    super(HttpStatus.CONFLICT, 'OUT_OF_STOCK', `Only ${stock} of ${sku} left`);
  }
}

/** Another request was faster each time: nothing happened, and the order may be sent again. */
export class ContendedException extends ShopException {
  constructor(sku: string) {
    super(HttpStatus.CONFLICT, 'CONTENDED', `Too many orders for ${sku} at once`);
  }
}

/** The lock had passed to a later holder: the row refuses the read or write of this one. */
export class StaleFencingTokenException extends ShopException {
  constructor(sku: string, fencingToken: number) {
    super(HttpStatus.CONFLICT, 'STALE_FENCING_TOKEN', `${sku} has seen a token above ${fencingToken}`);
  }
}

/** The number of an order belongs to another order. */
export class OrderMismatchException extends ShopException {
  constructor(orderId: string) {
    const message = `Order ${orderId} was placed before, with another content`;
    super(HttpStatus.UNPROCESSABLE_ENTITY, 'ORDER_MISMATCH', message);
  }
}
