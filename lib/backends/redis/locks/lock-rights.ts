import { randomUUID } from 'node:crypto';
import type { Probe, Rights } from '../start-up/rights.js';
import { channelPrefix, keysOf } from './redis-lock-keys.js';

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

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis), but never to a channel. */
export function rightsOfLocks(prefix: string | undefined, clientPrefix = ''): Rights {
  const channels = channelPrefix({ prefix });
  return {
    whose: 'locks',
    evictable: false,
    keyPatterns: [`${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`],
    messages: { channelPattern: `${channels}*`, channel: `${channels}check:${randomUUID()}` },
    probes: PROBES,
    keys: () => keysOf({ prefix, name: `check:${randomUUID()}` }),
  };
}
