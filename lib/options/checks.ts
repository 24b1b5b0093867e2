import ms from 'ms';
import { familyIn } from '../keys/key-part.js';
import type { OptionChecks } from './option-checks.js';

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
function isDurationText(value: string): value is DurationText {
  return /^\d+(\.\d+)?(ms|[smhdw])$/.test(value);
}

/**
 * Returns the value in the form that the code uses. @throws the ConfigError of `checks` for a value that it cannot take
 */
export type Check<T> = (value: unknown, option: string, checks: OptionChecks) => T;

/** Whole milliseconds. */
export function duration(least: number): Check<number> {
  return (value, option, checks) => checks.milliseconds(option, value, least);
}

/** Whole milliseconds that a timer can wait for. */
export function timer(least: number): Check<number> {
  return (value, option, checks) => checks.timerMilliseconds(option, value, least);
}

export function oneOf<const T extends string>(...values: readonly T[]): Check<T> {
  const quoted = values.map((value) => `'${value}'`);
  const remedy = `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`;
  return (value, option, checks) => {
    const found = values.find((each) => each === value);
    if (found === undefined) throw checks.refused(option, value, remedy);
    return found;
  };
}

export const trueOrFalse: Check<boolean> = (value, option, checks) => {
  if (typeof value !== 'boolean') throw checks.refused(option, value, 'true or false');
  return value;
};

export const wholeNumber: Check<number> = (value, option, checks) => {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) {
    throw checks.refused(option, value, 'a whole number from 1 on');
  }
  return value;
};

/** Takes `false`, which means `off`, or what `check` takes. */
export function orFalse<Off, T>(off: Off, check: Check<T>): Check<Off | T> {
  return (value, option, checks) => (value === false ? off : check(value, option, checks));
}

/** Takes a value that `is` accepts, without further checks. */
export function instance<T>(is: (value: unknown) => value is T, remedy: string): Check<T> {
  return (value, option, checks) => {
    if (!is(value)) throw checks.refused(option, value, remedy);
    return value;
  };
}

/** Takes a function. Its parameters and its result cannot be checked. */
export function callable<T extends (...args: never[]) => unknown>(remedy = 'a function'): Check<T> {
  return instance((value): value is T => typeof value === 'function', remedy);
}

export const abortSignal: Check<AbortSignal> = instance((value) => value instanceof AbortSignal, 'an AbortSignal');

/** Takes a string. */
export function text(remedy: string): Check<string> {
  return instance((value) => typeof value === 'string', remedy);
}

/** What precedes the names of a module. */
export const prefixText: Check<string> = (value, option, checks) => {
  const prefix = instance(isPrefix, 'a string without braces, which would change the Cluster slot')(
    value,
    option,
    checks,
  );
  const family = familyIn(`${prefix}:`);
  const remedy = `a prefix without "${family}" between colons: keys of applications with another prefix begin so`;
  checks.require(family === undefined, option, value, remedy);
  return prefix;
};

function isPrefix(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !/[{}]/.test(value);
}
