import { hash } from 'node:crypto';
import type { NameRequest } from '../../../contracts/lock-backend.js';

/**
 * The key of a lock: the SHA-256 of `:name`, or of `length:prefix:name` with a prefix. PostgreSQL takes no NUL in text
 * and indexes no value of more than 2.7 kB.
 */
export function lockKey({ prefix, name }: NameRequest): Buffer {
  if (last?.name !== name || last.prefix !== prefix) last = { prefix, name, key: hashOf(prefix, name) };
  return last.key;
}

/** The key asked for last: the calls for one name often follow each other. */
let last: { readonly prefix: string | undefined; readonly name: string; readonly key: Buffer } | undefined;

function hashOf(prefix: string | undefined, name: string): Buffer {
  return hash('sha256', `${prefix === undefined ? '' : `${prefix.length}:${prefix}`}:${name}`, 'buffer');
}

/** What precedes the id of a process in the table of labels. */
export function labelPrefix({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return prefix === undefined ? '' : `${JSON.stringify(prefix)} `;
}
