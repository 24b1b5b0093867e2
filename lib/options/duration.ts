import ms from 'ms';
import { refusedOption, type ConfigErrorClass } from './refused-option.js';

type Unit = 'ms' | 's' | 'm' | 'h' | 'd' | 'w';
type DurationText = `${number}${Unit}`;

/** Milliseconds, or a number with its unit: `300_000` and `'5m'` are the same. */
export type Duration = number | DurationText;

/** About 285,000 years; what `PX` of Redis takes is more. */
const LONGEST = Number.MAX_SAFE_INTEGER;
/** The longest delay that a timer of Node.js takes: about 24.8 days. */
export const LONGEST_DELAY = 2 ** 31 - 1;

/**
 * Whole milliseconds; fractions are rounded up. @throws the ConfigError, naming the option, the value and the remedy
 */
export function millisecondsOf(
  ConfigError: ConfigErrorClass,
  option: string,
  value: unknown,
  least: number,
  most = LONGEST,
): number {
  const given = typeof value === 'string' && isDurationText(value) ? ms(value) : value;
  if (typeof given === 'number' && given >= least && given <= most) return Math.ceil(given);
  const limit = most === LONGEST ? `${least} or more` : `from ${least} to ${most}`;
  const remedy = `milliseconds (${limit}) or a duration such as '500ms', '30s', '5m', '2h' or '1d'`;
  throw refusedOption(ConfigError, option, value, remedy);
}

/** `ms` takes much that is no duration by its type: '1 second', '-1s', '30'. */
function isDurationText(text: string): text is DurationText {
  return /^\d+(\.\d+)?(ms|[smhdw])$/.test(text);
}
