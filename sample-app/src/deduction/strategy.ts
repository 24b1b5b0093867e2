import type { OrderDto, ReceiptDto } from './deduction.dto.js';

export const STRATEGIES = ['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'] as const;

export type Strategy = (typeof STRATEGIES)[number];

/** One way of taking pieces out of the stock. */
export interface DeductionStrategy {
  /** @throws NotFoundException, OutOfStockException, or what the strategy says when it gives up */
  deduct(sku: string, order: OrderDto): Promise<ReceiptDto>;
}
