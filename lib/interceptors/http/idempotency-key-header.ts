import { IdempotencyHeaderError } from '../../errors/idempotency-errors.js';

const HEADER = 'idempotency-key';

/** As Stripe limits it. */
const LONGEST = 255;

/** A string of RFC 9651 (structured fields), as the IETF draft has it, or the bare text that most clients send. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"$/;
const BARE = /^[\x21\x23-\x2b\x2d-\x7e]+$/;

/**
 * The key that a request names; `undefined` without the header. A key in quotes and the same text without them are one
 * key.
 *
 * @throws IdempotencyHeaderError for a header that cannot be read
 */
export function idempotencyKeyOf(headers: Readonly<Record<string, unknown>>): string | undefined {
  const given = headers[HEADER];
  if (given === undefined) return undefined;
  const text = typeof given === 'string' ? given.trim() : '';
  const quoted = QUOTED.exec(text)?.[1];
  const key = quoted === undefined ? BARE.exec(text)?.[0] : quoted.replace(/\\(["\\])/g, '$1');
  if (key !== undefined && key.length <= LONGEST) return key;
  throw new IdempotencyHeaderError(
    `Send one Idempotency-Key header with 1 to ${LONGEST} visible ASCII characters, such as a UUID.`,
  );
}
