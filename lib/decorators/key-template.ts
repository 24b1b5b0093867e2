import { LockKeyError } from '../lock/lock-errors.js';

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
 * @throws LockKeyError when the template cannot be read, and for a value that would lock the wrong thing
 */
export function compileKeyTemplate(template: string): (args: readonly unknown[]) => readonly string[] {
  const parts = parse(template);
  const literals = parts.filter((part) => typeof part === 'string').join('');
  const separators = new Set(['%', ':', '{', '}', ...Array.from(literals).filter((char) => !ALPHANUMERIC.test(char))]);
  return (args) => {
    let names = [''];
    for (const part of parts) {
      const values = typeof part === 'string' ? [part] : valuesOf(template, part, args).map(escaped);
      names = names.flatMap((name) => values.map((value) => name + value));
    }
    return names;
  };

  function escaped(value: string): string {
    return Array.from(value, (char) => (separators.has(char) ? percentEncoded(char) : char)).join('');
  }
}

function parse(template: string): Part[] {
  if (typeof template !== 'string' || template === '') {
    throw new LockKeyError(
      `Key template is ${template === '' ? 'empty' : String(template)}; give a name or a template`,
    );
  }
  const parts: Part[] = template
    .split(/(<[^<>]*>)/)
    .filter((text) => text !== '')
    .map((text) => (text.startsWith('<') && text.endsWith('>') ? placeholder(template, text) : text));
  for (const [index, part] of parts.entries()) {
    if (typeof part === 'string') requireLiteral(template, part, index > 0 && index < parts.length - 1);
    else if (index > 0 && typeof parts[index - 1] !== 'string') throw notSeparated(template);
  }
  const lists = parts.filter((part) => typeof part !== 'string' && part.path.includes(EACH));
  if (lists.length > 1) {
    throw new LockKeyError(`Key template "${template}" walks two lists; give a function that returns the names`);
  }
  return parts;
}

function placeholder(template: string, text: string): Placeholder {
  const [first = '', ...path] = text.slice(1, -1).split('.');
  if (!/^\d+$/.test(first) || path.includes('')) {
    throw new LockKeyError(
      `Key template "${template}": "${text}" is not a placeholder; write the argument's number and a path, as in <0> or <0.customer.id>`,
    );
  }
  return { argument: Number(first), path, text };
}

function requireLiteral(template: string, text: string, between: boolean): void {
  if (/[<>]/.test(text)) {
    throw new LockKeyError(`Key template "${template}" has a single "<" or ">"; give a function for such a name`);
  }
  if (between && Array.from(text).every((char) => ALPHANUMERIC.test(char))) throw notSeparated(template);
}

function notSeparated(template: string): LockKeyError {
  return new LockKeyError(
    `Key template "${template}" runs two placeholders together; put a separator such as ":" between them`,
  );
}

function valuesOf(template: string, { argument, path, text }: Placeholder, args: readonly unknown[]): string[] {
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

  function refused(why: string): LockKeyError {
    return new LockKeyError(
      `Key template "${template}": ${text} is ${why}; it must be a string, number, bigint or boolean`,
    );
  }
}

function property(value: unknown, name: string): unknown {
  if (value === null || value === undefined) return undefined;
  return (value as Record<string, unknown>)[name];
}

/** `undefined` where the value may be part of a key. */
function whyNotAKeyPart(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      return value === '' ? 'an empty string' : undefined;
    case 'number':
      return Number.isFinite(value) ? undefined : String(value);
    case 'bigint':
    case 'boolean':
      return undefined;
    case 'object':
      return value === null ? 'null' : 'an object';
    default:
      return value === undefined ? 'undefined' : `a ${typeof value}`;
  }
}

/** encodeURIComponent leaves some of ASCII as it is. */
function percentEncoded(char: string): string {
  const encoded = encodeURIComponent(char);
  return encoded === char ? `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}` : encoded;
}
