/** What stands between the parts of a key, or has a meaning of its own in one. */
export const KEY_SEPARATORS: ReadonlySet<string> = new Set(['%', ':', '{', '}']);

/** Percent-encodes the separators, so that no value can forge another key. */
export function encodeKeyPart(value: string, separators = KEY_SEPARATORS): string {
  return Array.from(value, (char) => (separators.has(char) ? percentEncoded(char) : char)).join('');
}

/** `undefined` where the value may be part of a key. */
export function whyNotAKeyPart(value: unknown): string | undefined {
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
