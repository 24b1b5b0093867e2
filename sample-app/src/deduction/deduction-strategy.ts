import type { OrderDto, ReceiptDto } from './deduction.dto.js';

/** One way to take pieces out of the stock. */
export interface DeductionStrategy {
  /** @throws NotFoundException, OutOfStockException, or the error with which the strategy gives up */
  deduct(sku: string, order: OrderDto): Promise<ReceiptDto>;
}
