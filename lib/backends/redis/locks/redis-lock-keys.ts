// The keys and channels of locks at Redis, and the rights that an ACL user needs for them.

import { randomUUID } from 'node:crypto';
import type { NameRequest } from '../../../contracts/lock-backend.js';
import { escapeGlob } from '../../../keys/redis-glob.js';
import type { RedisClient } from '../connection/redis-client.js';
import type { Probe, Rights } from '../connection/server-check.js';

/** The key of a lock: `lock:{<name>}`, after the prefix. */
export function lockKey({ prefix, name }: NameRequest): string {
  return `${prefix === undefined ? '' : `${prefix}:`}lock:{${taggedName(name)}}`;
}

/**
 * The four keys of a lock: the lock, the first fencing token not yet issued, the queue, and the data of its waiters.
 */
export function keysOf(request: NameRequest): [lock: string, fence: string, queue: string, waiters: string] {
  const lock = lockKey(request);
  return [lock, `${lock}:fence`, `${lock}:queue`, `${lock}:waiters`];
}

/**
 * The key of a process's label. The pattern that lock keys match (for ACL rules) matches it, but it is never the key of
 * a lock.
 */
export function labelKey({ prefix }: Pick<NameRequest, 'prefix'>, process: string): string {
  return `${lockKey({ prefix, name: process })}:label`;
}

/** The key of the protocol versions in use: see NOTE_VERSION. It is never the key of a lock. */
export function versionsKey({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return `${lockKey({ prefix, name: 'protocol' })}:versions`;
}

/** A glob that matches the key of every lock whose name matches `pattern`, and perhaps of others. */
export function lockGlob(clientPrefix: string, prefix: string | undefined, pattern: string): string {
  // What stands for a `}` at the beginning of a name does not match it in its percent-encoded form.
  const names = /^[?[\\]|[}%]/.test(pattern) ? '*' : pattern;
  return `${escapeGlob(clientPrefix + beginningOf(prefix))}${names}}`;
}

/** The name of the lock whose key this is; `undefined` for another key of a lock, or of a process. */
export function lockName(prefix: string | undefined, key: string): string | undefined {
  const beginning = beginningOf(prefix);
  if (!key.startsWith(beginning) || !key.endsWith('}')) return undefined;
  return key.slice(beginning.length, -1).replace(/^%7D|^%25(?=(25)*7D)/, (code) => (code === '%7D' ? '}' : '%'));
}

/**
 * The name as it stands between braces, which make it the hash tag, so that all keys of a lock share a Cluster slot; a
 * name that begins with `{tag}` has that tag instead. A `}` at the beginning would close the tag at once and is
 * percent-encoded, and so is the `%` of text that looks like an encoded one (`%7D`, `%257D`).
 */
export function taggedName(name: string): string {
  return name.startsWith('}') || name.startsWith('%') ? encodeBeginning(name) : name;
}

function encodeBeginning(name: string): string {
  return name.replace(/^}|^%(?=(25)*7D)/, (char) => (char === '}' ? '%7D' : '%25'));
}

function beginningOf(prefix: string | undefined): string {
  return lockKey({ prefix, name: '' }).slice(0, -1);
}

/** The argument from which a script learns how to publish: see QUEUE. */
export function publishArgument(request: Pick<NameRequest, 'prefix'>, { isCluster }: RedisClient): string {
  return `${isCluster ? 0 : 1}${channelPrefix(request)}`;
}

/** The text with which the channel of every process begins; the id of the process follows. */
export function channelPrefix({ prefix }: Pick<NameRequest, 'prefix'>): string {
  return `${prefix === undefined ? '' : `${prefix}:`}lock:process:`;
}

/**
 * `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis), but never to a channel. `waits`:
 * for replicas.
 */
export function rightsOfLocks(prefix: string | undefined, clientPrefix = '', waits = false): Rights {
  const channels = channelPrefix({ prefix });
  return {
    whose: 'locks',
    evictable: false,
    keyPatterns: [`${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`],
    messages: { channelPattern: `${channels}*`, channel: `${channels}check:${randomUUID()}` },
    probes: PROBES,
    ...(waits && { commands: [['WAIT', '0', '1']] }),
    keys: () => keysOf({ prefix, name: `check:${randomUUID()}` }),
  };
}

/** Every command of the lock scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['RPUSH', 3, '1'],
  ['PEXPIRE', 3, '1'],
  ['LLEN', 3],
  ['LINDEX', 3, '0'],
  ['LINSERT', 3, 'BEFORE', '0', '1'],
  ['LPOS', 3, '1'],
  ['LREM', 3, '1', '1'],
  ['HSET', 4, '1', '1'],
  ['PEXPIRE', 4, '1'],
  ['HGET', 4, '1'],
  ['HLEN', 4],
  ['HEXISTS', 4, '1'],
  ['HDEL', 4, '1'],
];
