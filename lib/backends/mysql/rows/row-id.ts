import { createHash } from 'node:crypto';

/** A row, and the ticket that owns it or is to own it. */
export interface RowTicket {
  /** 64 hexadecimal digits. */
  readonly id: string;
  readonly ticket: string;
}

/**
 * The key of a name's row: 64 lower-case hexadecimal digits. Names differ in case, length and trailing blanks, all of
 * which a text column or `GET_LOCK` could ignore or refuse.
 */
export function rowIdOf(prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name]);
}

/**
 * The name for `GET_LOCK`, which is also the key of the row of its tokens. The server has one space of names for all of
 * its databases: those of another one, such as a copy for tests, must not exclude these.
 */
export function getLockNameOf(database: string, prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name, database]);
}

/** The key of the row that keeps the label of a process. */
export function labelIdOf(prefix: string | undefined, process: string): string {
  return hashOf(['label', prefix ?? null, process]);
}

function hashOf(parts: readonly (string | null)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
