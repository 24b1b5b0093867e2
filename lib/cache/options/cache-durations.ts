import { millisecondsOf, type Duration } from '../../options/duration.js';
import { refusedOption } from '../../options/refused-option.js';
import { CacheConfigError } from '../../errors/cache-errors.js';

export { LONGEST_DELAY, type Duration } from '../../options/duration.js';

/**
 * Whole milliseconds; fractions are rounded up. @throws CacheConfigError naming the option, the value and the remedy
 */
export function milliseconds(option: string, value: unknown, least: number, most?: number): number {
  return millisecondsOf(CacheConfigError, option, value, least, most);
}

/** A duration, or `Infinity` for what has no end. */
export type EndlessDuration = Duration;

/** As `milliseconds`, and `Infinity`; it must be given. */
export function endlessMilliseconds(option: string, value: unknown): number {
  if (value === Infinity) return Infinity;
  if (value === undefined) {
    throw refused(option, value, "how long it lives, such as '1d', or Infinity for what never ends by itself");
  }
  return milliseconds(option, value, 1);
}

export function refused(option: string, value: unknown, remedy: string): CacheConfigError {
  return refusedOption(CacheConfigError, option, value, remedy);
}
