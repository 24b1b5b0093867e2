/**
 * Milliseconds to pause before the retry that follows `failures` failures in a row (0: the first): doubles from `first`
 * to at most `longest`.
 */
export function backoff(failures: number, first = 25, longest = 1_000): number {
  return Math.min(first * 2 ** failures, longest);
}
