import { hash } from 'node:crypto';
import type { NameRequest } from '../../../contracts/lock-backend.js';

/**
 * The key of a lock, as PostgreSQL reads a `bytea`: the SHA-256 of `:name`, or of `length:prefix:name` with a prefix.
 * PostgreSQL takes no NUL in text and indexes no value of more than 2.7 kB.
 */
export function lockKey({ prefix, name }: NameRequest): string {
  if (last?.name !== name || last.prefix !== prefix) last = { prefix, name, key: `\\x${digestOf(prefix, name)}` };
  return last.key;
}

/** The key asked for last: the calls for one name often follow each other. */
let last: { readonly prefix: string | undefined; readonly name: string; readonly key: string } | undefined;

/** In hexadecimal digits: a string costs less than half of what a Buffer costs here. */
function digestOf(prefix: string | undefined, name: string): string {
  return hash('sha256', `${prefix === undefined ? '' : `${prefix.length}:${prefix}`}:${name}`, 'hex');
}

/**
 * In the order of the keys, which is that of PostgreSQL: statements that lock rows in one order never wait for each
 * other in a circle.
 */
export function inOrder<Keyed extends { readonly key: string }>(keyed: readonly Keyed[]): readonly Keyed[] {
  return keyed.toSorted((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

/** What precedes the id of a process in the table of labels. */
export function labelPrefix({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return prefix === undefined ? '' : `${JSON.stringify(prefix)} `;
}
