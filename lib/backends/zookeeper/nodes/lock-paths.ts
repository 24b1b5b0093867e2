import { createHash } from 'node:crypto';
import type { NameRequest } from '../../../contracts/lock-backend.js';

/** The longest name (in characters of its encoded form) that stands in a path; a longer one is hashed. */
const LONGEST = 200;

/** The path of the node below which the tickets of a name lie. */
export function parentPath(root: string, { prefix, name }: NameRequest): string {
  // ":" divides, because every ":" of prefix and name is encoded.
  return `${root}/${prefix === undefined ? '' : `${encoded(prefix)}:`}${encoded(name)}`;
}

/** What the name of a ticket's node begins with. */
export function childPrefix(ticket: string): string {
  return `${encodeURIComponent(ticket)}-lock-`;
}

/** The ticket of a node; the name of the node itself if it is not one of ours. */
export function ticketOf(child: string): string {
  const end = child.lastIndexOf('-lock-');
  if (end === -1) return child;
  try {
    return decodeURIComponent(child.slice(0, end));
  } catch {
    return child;
  }
}

/** Percent-encoded; a node cannot be named "." or "..", and "~" begins what is hashed. */
function encoded(text: string): string {
  const plain = encodeURIComponent(text).replace(/^[.~]/, (first) => (first === '.' ? '%2E' : '%7E'));
  if (plain.length <= LONGEST) return plain;
  return `~${createHash('sha256').update(text).digest('hex')}`;
}
