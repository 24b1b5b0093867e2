import ms from 'ms';

type Unit = 'ms' | 's' | 'm' | 'h' | 'd' | 'w';
type DurationText = `${number}${Unit}`;

/** Milliseconds, or a number with its unit: `300_000` and `'5m'` are the same. */
export type Duration = number | DurationText;

/** A duration, or `Infinity` for a value that never expires. */
export type EndlessDuration = Duration;

/** The duration in ms, with its fraction; `undefined` for a value that is not a duration. */
export function parseDuration(value: unknown): number | undefined {
  const given = typeof value === 'string' && isDurationText(value) ? ms(value) : value;
  return typeof given === 'number' && !Number.isNaN(given) ? given : undefined;
}

/** `ms` also takes text that is not a `Duration`: '1 second', '-1s', '30'. */
function isDurationText(text: string): text is DurationText {
  return /^\d+(\.\d+)?(ms|[smhdw])$/.test(text);
}
