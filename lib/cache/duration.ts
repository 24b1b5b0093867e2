import { millisecondsOf } from '../options/duration.js';
import { refusedOption } from '../options/refused-option.js';
import { CacheConfigError } from './cache-errors.js';

export { LONGEST_DELAY, type Duration } from '../options/duration.js';

/** Whole milliseconds; fractions are rounded up. @throws CacheConfigError naming the option, the value and the remedy */
export function milliseconds(option: string, value: unknown, least: number, most?: number): number {
  return millisecondsOf(CacheConfigError, option, value, least, most);
}

export function refused(option: string, value: unknown, remedy: string): CacheConfigError {
  return refusedOption(CacheConfigError, option, value, remedy);
}
