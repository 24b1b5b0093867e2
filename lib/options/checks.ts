import type { OptionChecks } from './option-checks.js';

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
