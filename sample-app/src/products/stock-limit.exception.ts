import { HttpException, HttpStatus } from '@nestjs/common';

/** The most that the column holds. */
const MOST = 2 ** 31 - 1;

/** The stock would exceed what its column can hold. */
export class StockLimitException extends HttpException {
  constructor(sku: string) {
    const message = `The stock of ${sku} cannot be above ${MOST}: restock fewer pieces`;
    super({ statusCode: 400, code: 'STOCK_LIMIT', message }, HttpStatus.BAD_REQUEST);
  }
}
