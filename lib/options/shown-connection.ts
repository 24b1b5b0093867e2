import { textOf } from '../errors/limited-log.js';

/**
 * What messages show of a text that is refused as the address of a server. A password may stand anywhere in it, as in
 * `redis:/:password@host`: nothing is shown but a scheme, and hosts with their ports.
 */
export function shownConnection(given: unknown): string {
  if (Array.isArray(given)) return `[${given.map(shownConnection).join(', ')}]`;
  if (typeof given !== 'string') return textOf(given);
  if (given.split(',').every((each) => each === '' || /^[a-z0-9.-]+:\d{1,5}$/i.test(each))) return `"${given}"`;
  const [scheme = ''] = /^[a-z][a-z+]{0,15}:\/\//i.exec(given) ?? [];
  return `"${scheme}..."`;
}

/** Whether a URL has an "@" behind its host: the first "/", "?" or "#" of its password has ended that. */
export function isCutInPassword(url: string): boolean {
  return /^[^:]+:\/\/[^/?#]*(?:\/[^?#]*@|\/?[^?#/]*\?[^=#]*@|[^#]*#.*@)/.test(url);
}

export const CUT_IN_PASSWORD = 'a URL with "@" behind its host';
export const ENCODE_PASSWORD = 'one whose password has its special characters percent-encoded, as "/" by %2F';
