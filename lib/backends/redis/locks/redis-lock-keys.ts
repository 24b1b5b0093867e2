import type { NameRequest } from '../../../contracts/lock-backend.js';
import type { RedisClient } from '../redis-client.js';

/**
 * The key of a lock: `lock:{<name>}`, behind the prefix. The braces make the name the hash tag, so that all keys of a
 * lock share a Cluster slot; a name that begins with `{tag}` has that tag as its own. A `}` at the beginning would
 * close the tag at once and is percent-encoded, as is the `%` of what looks like one that was (`%7D`, `%257D`).
 */
export function lockKey({ prefix, name }: NameRequest): string {
  const tagged = name.replace(/^}|^%(?=(25)*7D)/, (char) => (char === '}' ? '%7D' : '%25'));
  return `${prefix === undefined ? '' : `${prefix}:`}lock:{${tagged}}`;
}

/**
 * The four keys of a lock: itself, the first fencing token not yet issued, the waiting queue, and the waiters in it.
 */
export function keysOf(request: NameRequest): [lock: string, fence: string, queue: string, waiters: string] {
  const lock = lockKey(request);
  return [lock, `${lock}:fence`, `${lock}:queue`, `${lock}:waiters`];
}

/** Where a process says who it is; matched by the pattern of the keys of locks, and never the key of one. */
export function labelKey({ prefix }: Pick<NameRequest, 'prefix'>, process: string): string {
  return `${lockKey({ prefix, name: process })}:label`;
}

/** Tells a script how to publish: see QUEUE. */
export function publishArgument(request: Pick<NameRequest, 'prefix'>, { isCluster }: RedisClient): string {
  return `${isCluster ? 0 : 1}${channelPrefix(request)}`;
}

/** What the channel of every process begins with; the id of the process follows. */
export function channelPrefix({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return `${prefix === undefined ? '' : `${prefix}:`}lock:process:`;
}
