import { randomUUID } from 'node:crypto';
import { RedisCacheKeys } from '../cache/redis-cache-keys.js';
import { channelPrefix, keysOf } from '../locks/redis-lock-keys.js';

/** A command that does no harm; a number stands for the key of that place. */
export type Probe = readonly [command: string, ...args: (string | number)[]];

/** What a part of the library needs of an ACL user. */
export interface Rights {
  /** As in "what locks need". */
  readonly whose: string;
  /** Whether Redis must never evict it. */
  readonly evictable: boolean;
  readonly keyPattern: string;
  readonly channelPattern: string;
  /** A channel that nobody listens to. */
  readonly channel: string;
  readonly probes: readonly Probe[];
  /** Keys of our own, of one slot; others with each call. */
  keys(): readonly string[];
}

/** Each on a key of its own type; whatever is written is gone at the end, or a millisecond later. */
const LOCK_PROBES: readonly Probe[] = [
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
  ['LPOS', 3, '1'],
  ['LREM', 3, '1', '1'],
  ['HSET', 4, '1', '1'],
  ['PEXPIRE', 4, '1'],
  ['HGET', 4, '1'],
  ['HLEN', 4],
  ['HEXISTS', 4, '1'],
  ['HDEL', 4, '1'],
];

const CACHE_PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['UNLINK', 1],
  ['SET', 2, '1', 'PX', '1'],
  ['SET', 3, '1', 'PX', '1'],
];

export function rightsOfLocks(prefix: string | undefined, clientPrefix = ''): Rights {
  const channels = channelPrefix({ prefix });
  return {
    whose: 'locks',
    evictable: false,
    keyPattern: `${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`,
    channelPattern: `${channels}*`,
    channel: `${channels}check:${randomUUID()}`,
    probes: LOCK_PROBES,
    keys: () => keysOf({ prefix, name: `check:${randomUUID()}` }),
  };
}

export function rightsOfCache(prefix: string | undefined, clientPrefix = ''): Rights {
  const keys = new RedisCacheKeys(prefix, clientPrefix);
  return {
    whose: 'the cache',
    evictable: true,
    keyPattern: `${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}*`,
    channelPattern: `${keys.channel}*`,
    channel: `${keys.channel}:check:${randomUUID()}`,
    probes: CACHE_PROBES,
    keys: () => keys.valueLeaseAndBarrier(`check:${randomUUID()}`),
  };
}
