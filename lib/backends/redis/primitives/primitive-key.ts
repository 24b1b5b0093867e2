// The keys and channels of the primitives at Redis.

import type { NameRequest } from '../../../contracts/lock-backend.js';
import { taggedName } from '../locks/redis-lock-keys.js';

/**
 * The key of a primitive: `semaphore:{name}`, after the prefix; what follows it keeps all its keys in one Cluster slot.
 * Names are written as those of locks are.
 */
export function primitiveKey(kind: string, { prefix, name }: NameRequest): string {
  return `${prefix === undefined ? '' : `${prefix}:`}${kind}:{${taggedName(name)}}`;
}

/** The text with which the channel of every process begins; the id of the process follows. */
export function primitiveChannels(prefix: string | undefined): string {
  return `${prefix === undefined ? '' : `${prefix}:`}primitive:process:`;
}
