import { encodeKeyPart, KEY_SEPARATORS, whyNotAKeyPart } from '../keys/key-part.js';

/** The error that a template and its values are refused with. */
export type KeyErrorClass = new (message: string) => Error;

interface Placeholder {
  readonly argument: number;
  readonly path: readonly string[];
  readonly text: string;
}

type Part = string | Placeholder;

/** Where a list is to be walked: one key for each of its elements. */
const EACH = '*';
const ALPHANUMERIC = /[\p{L}\p{N}]/u;

/**
 * Reads a template such as `order:<0>` or `sku:<0.items.*.sku>` once, and answers what builds the names from the
 * arguments of a call.
 *
 * Value parts are percent-encoded at `%`, `:`, braces, and at every other separator that the template itself uses, so that
 * no value can forge another name.
 *
 * @throws KeyError when the template cannot be read, and for a value that would name the wrong thing
 */
export function compileKeyTemplate(
  template: string,
  KeyError: KeyErrorClass,
): (args: readonly unknown[]) => readonly string[] {
  return compile(template, parse(template, KeyError), KeyError);
}

/** The same for a template of one key. @throws KeyError also when the template walks a list */
export function compileSingleKeyTemplate(
  template: string,
  KeyError: KeyErrorClass,
): (args: readonly unknown[]) => string {
  const parts = parse(template, KeyError);
  if (parts.some(walksList)) {
    throw new KeyError(
      `Key template "${template}" yields a key for each element, where one key is needed; leave the * out`,
    );
  }
  const names = compile(template, parts, KeyError);
  return (args) => names(args)[0] as string;
}

function compile(
  template: string,
  parts: readonly Part[],
  KeyError: KeyErrorClass,
): (args: readonly unknown[]) => readonly string[] {
  const literals = parts.filter((part) => typeof part === 'string').join('');
  const separators = new Set([...KEY_SEPARATORS, ...Array.from(literals).filter((char) => !ALPHANUMERIC.test(char))]);
  return (args) => {
    let names = [''];
    for (const part of parts) {
      const values =
        typeof part === 'string'
          ? [part]
          : valuesOf(template, part, args, KeyError).map((value) => encodeKeyPart(value, separators));
      names = names.flatMap((name) => values.map((value) => name + value));
    }
    return names;
  };
}

function parse(template: string, KeyError: KeyErrorClass): Part[] {
  if (typeof template !== 'string' || template === '') {
    throw new KeyError(`Key template is ${template === '' ? 'empty' : String(template)}; give a name or a template`);
  }
  const parts: Part[] = template
    .split(/(<[^<>]*>)/)
    .filter((text) => text !== '')
    .map((text) => (text.startsWith('<') && text.endsWith('>') ? placeholder(template, text, KeyError) : text));
  for (const [index, part] of parts.entries()) {
    if (typeof part === 'string') requireLiteral(template, part, index > 0 && index < parts.length - 1, KeyError);
    else if (index > 0 && typeof parts[index - 1] !== 'string') throw notSeparated(template, KeyError);
  }
  if (parts.filter(walksList).length > 1) {
    throw new KeyError(`Key template "${template}" walks two lists; give a function that returns the names`);
  }
  return parts;
}

function walksList(part: Part): boolean {
  return typeof part !== 'string' && part.path.includes(EACH);
}

function placeholder(template: string, text: string, KeyError: KeyErrorClass): Placeholder {
  const [first = '', ...path] = text.slice(1, -1).split('.');
  if (!/^\d+$/.test(first) || path.includes('')) {
    throw new KeyError(
      `Key template "${template}": "${text}" is not a placeholder; write the argument's number and a path, as in <0> or <0.customer.id>`,
    );
  }
  return { argument: Number(first), path, text };
}

function requireLiteral(template: string, text: string, between: boolean, KeyError: KeyErrorClass): void {
  if (/[<>]/.test(text)) {
    throw new KeyError(`Key template "${template}" has a single "<" or ">"; give a function for such a name`);
  }
  if (between && Array.from(text).every((char) => ALPHANUMERIC.test(char))) throw notSeparated(template, KeyError);
}

function notSeparated(template: string, KeyError: KeyErrorClass): Error {
  return new KeyError(
    `Key template "${template}" runs two placeholders together; put a separator such as ":" between them`,
  );
}

function valuesOf(
  template: string,
  { argument, path, text }: Placeholder,
  args: readonly unknown[],
  KeyError: KeyErrorClass,
): string[] {
  let found: unknown[] = [args[argument]];
  for (const step of path) {
    found = found.flatMap((value) => (step === EACH ? elements(value) : [property(value, step)]));
  }
  if (found.length === 0) throw refused('an empty list');
  return found.map((value) => {
    const why = whyNotAKeyPart(value);
    if (why) throw refused(why);
    return String(value);
  });

  function elements(value: unknown): readonly unknown[] {
    if (Array.isArray(value)) return value;
    throw refused(`not a list at "${EACH}"`);
  }

  function refused(why: string): Error {
    return new KeyError(
      `Key template "${template}": ${text} is ${why}; it must be a string, number, bigint or boolean`,
    );
  }
}

function property(value: unknown, name: string): unknown {
  if (value === null || value === undefined) return undefined;
  return (value as Record<string, unknown>)[name];
}
