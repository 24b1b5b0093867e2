/** The least and the most of each number of a sale, on the command line and on the live page. */
export const SALE_LIMITS = {
  instances: [1, 32],
  stock: [0, 1_000_000],
  orders: [1, 1_000_000],
  concurrency: [1, 2_000],
} as const;

/** Seconds that a sale may take at most: a minute, and a second for every 20 orders. */
export function timeLimitFor(orders: number): number {
  return 60 + Math.ceil(orders / 20);
}
