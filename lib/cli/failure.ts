import { CommanderError } from 'commander';
import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { LockConfigError, LockKeyError } from '../errors/lock-errors.js';

/** What the program exits with. */
export const EXIT = { done: 0, notFound: 1, usage: 2, unavailable: 3 } as const;

const OF_USAGE = [LockConfigError, LockKeyError, CacheConfigError, CacheKeyError];

/** A wrong argument or option. */
export class UsageError extends Error {}

export function exitCodeOf(error: unknown): number {
  // Help and the version are no failures.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
  if (error instanceof UsageError || OF_USAGE.some((each) => error instanceof each)) return EXIT.usage;
  return EXIT.unavailable;
}

/** The message without a stack trace, in one line. */
export function lineOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n').join(' ');
}
