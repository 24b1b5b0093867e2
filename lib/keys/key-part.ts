import { inspect } from 'node:util';

/** The characters that separate the parts of a key, mark an escape, or enclose the hash tag of a Redis Cluster. */
const STRUCTURE: readonly string[] = ['%', ':', '{', '}'];

/**
 * Returns a function that percent-encodes the characters of a value that have a meaning in a key: `%`, `:`, braces, and
 * `separators`. So no value can forge another key. All other characters stay, so that a key written by hand is the same
 * key.
 */
export function keyPartEncoder(separators: readonly string[] = []): (value: string) => string {
  const chars = [...new Set([...STRUCTURE, ...separators])].map((char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
  const separating = new RegExp(`[${chars.join('')}]`, 'gu');
  return (value) => value.replace(separating, percentEncoded);
}

/** Encodes `%`, `:` and braces. */
export const encodeKeyPart = keyPartEncoder();

/**
 * A name that the library makes up. Names that a developer writes are shared by all applications at a store, which is
 * meant; a made-up name carries its application.
 */
export function derivedName(kind: string, application: string | undefined, parts: readonly string[]): string {
  const all = application === undefined ? parts : [application, ...parts];
  return [kind, ...all.map(encodeKeyPart)].join(':');
}

/** Why the value cannot be part of a key; `undefined` when it can. */
export function whyNotAKeyPart(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      if (value === '') return 'an empty string';
      return value.isWellFormed() ? undefined : whyNotText(value);
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

/** Why the value cannot be a whole key; `undefined` when it can. */
export function whyNotAName(value: unknown): string | undefined {
  if (typeof value === 'string' && value !== '') return value.isWellFormed() ? undefined : whyNotText(value);
  if (value === '') return 'an empty string';
  // An object may have no text, or one whose making throws.
  const text = inspect(value, { depth: 0, customInspect: false });
  return `${text} (${typeof value})`;
}

/**
 * Why the text cannot be part of a key: half a surrogate pair, which UTF-8 replaces with the same character whatever it
 * was. `undefined` when there is none.
 */
export function whyNotText(text: string): string | undefined {
  return text.isWellFormed() ? undefined : `${JSON.stringify(text)}, which has half a surrogate pair`;
}

/** The names as lines of the log and errors show them; what is no text as well, as the error may be about that. */
export function quoted(names: readonly unknown[]): string {
  const shown = (name: unknown) =>
    typeof name === 'string' ? `"${name}"` : inspect(name, { depth: 0, customInspect: false });
  return names.map(shown).join(', ');
}

/** Also encodes the ASCII characters that encodeURIComponent leaves as they are. */
function percentEncoded(char: string): string {
  const encoded = encodeURIComponent(char);
  return encoded === char ? `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}` : encoded;
}

/**
 * How the keys of the library go on after a prefix. None may be a part of a prefix: the locks of `shop:cache` would be
 * values of the cache of `shop`.
 */
const KEY_FAMILIES = new Set([
  'lock',
  'lease',
  'barrier',
  'rate',
  'cache',
  'cache-set',
  'cache-expiring-set',
  'cache-tag',
  'cache-tags',
  'cache-bits',
  'cache-versions',
  'cache-scheduled',
]);

/** The part before a colon in what keys begin with that is the name of a family of keys. */
export function familyIn(beginning: string): string | undefined {
  return beginning
    .split(':')
    .slice(0, -1)
    .find((part) => KEY_FAMILIES.has(part));
}
