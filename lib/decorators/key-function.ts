import { methodName } from './method-wrapping.js';
import { compileKeyTemplate, compileSingleKeyTemplate, type KeyErrorClass } from './key-template.js';

/** A key template, several, or a function of the method's arguments. */
export type AnyKey = string | readonly string[] | ((...args: never[]) => string | readonly string[]);

/**
 * Returns a function that makes the keys of a call from its arguments. @throws KeyError for an unreadable or missing
 * template
 */
export function keyFunction(
  key: AnyKey,
  KeyError: KeyErrorClass,
): (args: readonly unknown[]) => string | readonly string[] {
  if (typeof key === 'function') return (args) => key(...(args as never[]));
  if (Array.isArray(key) && key.length === 0) {
    throw new KeyError('The list of key templates is empty; give one or more');
  }
  const templates = (typeof key === 'string' ? [key] : (key as readonly string[])).map((template) =>
    compileKeyTemplate(template, KeyError),
  );
  return (args) => templates.flatMap((names) => names(args));
}

/** Names the keys of a decorated method in events: its templates, or `Class.method` if it has a function. */
export function templateNamed(key: AnyKey, target: object, method: string | symbol): string {
  if (typeof key === 'function') return methodName(target, method);
  return typeof key === 'string' ? key : key.join(',');
}

/** The same for decorators that take one key. @throws KeyError also for a template that makes several keys */
export function singleKeyFunction(
  key: string | ((...args: never[]) => string),
  KeyError: KeyErrorClass,
): (args: readonly unknown[]) => string {
  if (typeof key !== 'function') return compileSingleKeyTemplate(key, KeyError);
  return (args) => {
    const made: unknown = key(...(args as never[]));
    if (typeof made === 'string' && made !== '') return made;
    throw new KeyError(`The key function returned ${made === '' ? 'an empty string' : String(made)}; return one key`);
  };
}
