/** The clock of the server, in UTC; the same value everywhere in one statement. */
export const NOW = 'UTC_TIMESTAMP(6)';
/** The longest time (ms) that is added to a DATETIME, whose last year is 9999. */
const LONGEST = 1_000 * 365 * 86_400_000;

export const MICROSECONDS = microseconds(NOW);
/** Tokens are above this, and milliseconds of remaining lease below it: one number says which of the two it is. */
export const LEAST_TOKEN = 2 ** 50;
/** How many tokens are reserved at once for the callers of one process. */
export const TOKENS = 128;

/** Text as a literal that no mode of the server reads differently, such as NO_BACKSLASH_ESCAPES. */
export function bytes(text: string): string {
  return isPlain(text) ? `'${text}'` : `x'${Buffer.from(text).toString('hex')}'`;
}

/** Whether the text is the same inside quotes in every mode and character set. */
export function isPlain(text: string): boolean {
  return PLAIN.test(text);
}

const PLAIN = /^[\w:.-]*$/;

/** The first 255 characters, which is what the column takes. */
export function characters(text: string): string {
  return `_utf8mb4 x'${Buffer.from(text.slice(0, 255)).toString('hex')}'`;
}

/** `ms` from now. */
export function after(ms: number): string {
  return `${NOW} + INTERVAL ${intervalOf(ms)} MICROSECOND`;
}

/** Microseconds that can be added to a time. */
export function intervalOf(ms: number): string {
  return `${Math.min(ms, LONGEST)}000`;
}

/** The time in `column` as microseconds. */
export function microseconds(column: string): string {
  return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column})`;
}

/** The `ttl` of each row from now. */
export function afterEach(rows: readonly { readonly id: string; readonly ttl: number }[]): string {
  const [{ ttl }] = rows as [(typeof rows)[number]];
  if (rows.every((row) => row.ttl === ttl)) return after(ttl);
  return `${NOW} + INTERVAL CAST(${ofEach(rows, (row) => intervalOf(row.ttl))} AS SIGNED) MICROSECOND`;
}

/** The value of that of the rows which has the key. */
export function ofEach<Row extends { readonly id: string }>(
  rows: readonly Row[],
  valueOf: (row: Row) => string,
): string {
  return `ELT(FIELD(id, ${rows.map(({ id }) => `x'${id}'`).join(', ')}), ${rows.map(valueOf).join(', ')})`;
}

/** Whole milliseconds until the time in `column`. */
export function until(column: string): string {
  return `TIMESTAMPDIFF(MICROSECOND, ${NOW}, ${column}) DIV 1000`;
}

/**
 * Moves a token beyond a range of `TOKENS` that begins above `token`, at the clock of the server in microseconds at
 * least: so tokens rise also after the row was deleted. The first token is even, and `bit` is added to it in the
 * answer.
 */
export function reserve(token: string, leastToken: number, bit: string): string {
  const least = Math.max(LEAST_TOKEN, leastToken - 1);
  return `LAST_INSERT_ID((GREATEST(${token}, ${MICROSECONDS}, ${least}) | 1) + 1 + (${bit})) + ${TOKENS - 1}`;
}

/** The row of one of the keys. */
export function oneOf(ids: readonly string[]): string {
  return `id IN (${ids.map((id) => `x'${id}'`).join(', ')})`;
}

/**
 * Whether the time in `column` was `age` ms ago. A row with a token that the clock has not reached yet stays, so that
 * the tokens of its successor are larger.
 */
export function unusedFor(age: number, column: string): string {
  return `${column} <= ${NOW} - INTERVAL ${age}000 MICROSECOND AND token < ${MICROSECONDS}`;
}
