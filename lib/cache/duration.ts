import ms from 'ms';
import { CacheConfigError } from './cache-errors.js';

type Unit = 'ms' | 's' | 'm' | 'h' | 'd' | 'w';

/** Milliseconds, or a number with its unit: `300_000` and `'5m'` are the same. */
export type Duration = number | `${number}${Unit}`;

/** About 285,000 years; what `PX` of Redis takes is more. */
const LONGEST = Number.MAX_SAFE_INTEGER;
/** The longest delay that a timer of Node.js takes: about 24.8 days. */
export const LONGEST_DELAY = 2 ** 31 - 1;

/** Whole milliseconds; fractions are rounded up. @throws CacheConfigError naming the option, the value and the remedy */
export function milliseconds(option: string, value: Duration, least: number, most = LONGEST): number {
  const given = typeof value === 'string' && /^\d+(\.\d+)?(ms|[smhdw])$/.test(value) ? ms(value) : value;
  if (typeof given === 'number' && given >= least && given <= most) return Math.ceil(given);
  const limit = most === LONGEST ? `${least} or more` : `from ${least} to ${most}`;
  throw refused(option, value, `milliseconds (${limit}) or a duration such as '500ms', '30s', '5m', '2h' or '1d'`);
}

export function refused(option: string, value: unknown, remedy: string): CacheConfigError {
  const shown = typeof value === 'string' ? `"${value}"` : String(value);
  return new CacheConfigError(`Option "${option}" is ${shown}; give ${remedy}`);
}
