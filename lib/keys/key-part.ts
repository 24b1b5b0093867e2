/** What stands between the parts of a key, marks an escape, or is the hash tag of Redis Cluster. */
const STRUCTURE: readonly string[] = ['%', ':', '{', '}'];

/**
 * Makes what percent-encodes the characters of a value that separate the parts of a key: `%`, `:`, braces, and
 * `separators`, so that no value can forge another key. All else stays as it is, so that a key made by hand is the same
 * key.
 */
export function keyPartEncoder(separators: readonly string[] = []): (value: string) => string {
  const chars = [...new Set([...STRUCTURE, ...separators])].map((char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
  const separating = new RegExp(`[${chars.join('')}]`, 'gu');
  return (value) => value.replace(separating, percentEncoded);
}

/** Encodes `%`, `:` and braces. */
export const encodeKeyPart = keyPartEncoder();

/** `undefined` where the value may be part of a key. */
export function whyNotAKeyPart(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      return value === '' ? 'an empty string' : whyNotText(value);
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

/** `undefined` where the value may be a whole key. */
export function whyNotAName(value: unknown): string | undefined {
  if (typeof value === 'string' && value !== '') return whyNotText(value);
  return value === '' ? 'an empty string' : `${String(value)} (${typeof value})`;
}

/**
 * `undefined` unless the text has half a surrogate pair: UTF-8, as sent to a server, has one character for all of
 * those.
 */
export function whyNotText(text: string): string | undefined {
  return text.isWellFormed() ? undefined : `${JSON.stringify(text)}, which has half a surrogate pair`;
}

/** encodeURIComponent leaves some of ASCII as it is. */
function percentEncoded(char: string): string {
  const encoded = encodeURIComponent(char);
  return encoded === char ? `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}` : encoded;
}
