// The keys and channels of the primitives at Redis.

import { randomUUID } from 'node:crypto';
import { PROBES_OF_TEXT, type Probe, type Rights } from '../connection/server-check.js';
import { taggedName } from '../locks/redis-lock-keys.js';

/**
 * The key of a primitive: `semaphore:{name}`, after the prefix; what follows it keeps all its keys in one Cluster slot.
 * Names are written as those of locks are.
 */
export function primitiveKey(kind: string, prefix: string | undefined, name: string): string {
  return `${prefix === undefined ? '' : `${prefix}:`}${kind}:{${taggedName(name)}}`;
}

/** The text with which the channel of every process begins; the id of the process follows. */
export function primitiveChannels(prefix: string | undefined): string {
  return `${prefix === undefined ? '' : `${prefix}:`}primitive:process:`;
}

/** What semaphores and latches need, besides what locks do. */
export function rightsOfSemaphores(prefix: string | undefined, clientPrefix = ''): Rights {
  const channels = primitiveChannels(prefix);
  const keyOf = (kind: string) => primitiveKey(kind, prefix, `check:${randomUUID()}`);
  return {
    whose: 'semaphores and latches',
    evictable: true,
    keyPatterns: ['semaphore', 'latch'].map(
      (kind) => `${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}${kind}:{*`,
    ),
    messages: { channelPattern: `${channels}*`, channel: `${channels}check:${randomUUID()}` },
    probes: PROBES,
    keys: () => [keyOf('semaphore')],
  };
}

/** Every command of the scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ...PROBES_OF_TEXT,
  ['HSET', 1, '1', '1'],
  ['HMGET', 1, '1'],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['ZADD', 1, '1', '1'],
  ['PEXPIRE', 1, '1'],
  ['ZCARD', 1],
  ['ZCOUNT', 1, '0', '1'],
  ['ZSCORE', 1, '1'],
  ['ZRANGE', 1, '0', '0'],
  ['ZREMRANGEBYSCORE', 1, '0', '0'],
  ['ZREM', 1, '1'],
  ['DEL', 1],
  ['SADD', 1, '1'],
  ['PEXPIRE', 1, '1'],
  ['SCARD', 1],
  ['DEL', 1],
];
