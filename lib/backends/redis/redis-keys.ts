import type { NameRequest } from '../lock-backend.js';

/**
 * The key of a lock: `lock:{<name>}`, behind the prefix. The braces make the name the hash tag, so that a lock and its
 * fence share a Cluster slot; a name that begins with `{tag}` has that tag as its own. A `}` at the beginning would close
 * the tag at once and is percent-encoded.
 */
export function lockKey({ prefix, name }: NameRequest): string {
  const tagged = name.startsWith('}') ? `%7D${name.slice(1)}` : name;
  return `${prefix === undefined ? '' : `${prefix}:`}lock:{${tagged}}`;
}

/** The key of the lock's fence: the first fencing token not yet issued. */
export function fenceKey(lock: string): string {
  return `${lock}:fence`;
}
