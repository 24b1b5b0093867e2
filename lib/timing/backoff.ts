/**
 * Milliseconds to pause before the next retry, after `failures` earlier retries have failed: doubles from `first` up to
 * `longest`.
 */
export function backoff(failures: number, first = 25, longest = 1_000): number {
  return Math.min(first * 2 ** failures, longest);
}
