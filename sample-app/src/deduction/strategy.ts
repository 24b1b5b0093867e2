import type { OrderDto, ReceiptDto } from './deduction.dto.js';

/** How an order takes its pieces out of the stock beside others; `none` shows why that needs care. */
export const STRATEGIES = ['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'] as const;

/** Locks with known faults, to compare the others with. */
const NAIVE_STRATEGIES = ['setnx', 'setnx-expiry'] as const;

export const ALL_STRATEGIES = [...STRATEGIES, ...NAIVE_STRATEGIES] as const;

export type Strategy = (typeof ALL_STRATEGIES)[number];

/** One way to take pieces out of the stock. */
export interface DeductionStrategy {
  /** @throws NotFoundException, OutOfStockException, or the error with which the strategy gives up */
  deduct(sku: string, order: OrderDto): Promise<ReceiptDto>;
}
