import { compileKeyTemplate, compileSingleKeyTemplate, type KeyErrorClass } from './key-template.js';

/** A key template, several, or a function of the method's arguments. */
export type AnyKey = string | readonly string[] | ((...args: never[]) => string | readonly string[]);

/**
 * What makes the keys of a call from its arguments. @throws KeyError for a template that cannot be read, and for none
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

/** The same where one key is needed. @throws KeyError also for a template that makes several */
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
