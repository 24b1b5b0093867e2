import { randomUUID } from 'node:crypto';
import type { Probe, Rights } from '../start-up/rights.js';
import { RedisCacheKeys } from './redis-cache-keys.js';

/**
 * Every command that the cache sends or its scripts run, each on a key of its type: 1 value, 2 lease, 3 barrier, 4 set.
 * What they write is deleted or expires after 1 ms.
 */
const PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['MGET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['INCRBY', 1, '1'],
  ['PEXPIREAT', 1, '1'],
  ['SETBIT', 1, '0', '1'],
  ['GETBIT', 1, '0'],
  ['GETRANGE', 1, '0', '0'],
  ['STRLEN', 1],
  ['PERSIST', 1],
  ['PEXPIRE', 1, '1'],
  ['SCAN', '0', 'COUNT', '1'],
  ['SET', 2, '1', 'PX', '1'],
  ['RENAME', 2, 1],
  ['ZADD', 3, '1', '1'],
  ['PEXPIRE', 3, '1'],
  ['ZCARD', 3],
  ['ZSCORE', 3, '1'],
  ['ZRANGE', 3, '0', '0'],
  ['ZRANGEBYSCORE', 3, '1', '1'],
  ['ZREMRANGEBYSCORE', 3, '0', '0'],
  ['ZREM', 3, '1'],
  ['SADD', 4, '1'],
  ['PEXPIRE', 4, '1'],
  ['SISMEMBER', 4, '1'],
  ['SMEMBERS', 4],
  ['SREM', 4, '1'],
  ['UNLINK', 1, 2, 3, 4],
];

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function rightsOfCache(prefix: string | undefined, clientPrefix = ''): Rights {
  const keys = new RedisCacheKeys(prefix, clientPrefix);
  const before = clientPrefix + (prefix === undefined ? '' : `${prefix}:`);
  return {
    whose: 'the cache',
    evictable: true,
    keyPatterns: [`${before}cache*`, `${before}lease:*`, `${before}barrier:*`],
    messages: { channelPattern: `${keys.channel}*`, channel: `${keys.channel}:check:${randomUUID()}` },
    probes: PROBES,
    keys: () => {
      // The braces put the set into the same Cluster slot as the other keys.
      const key = `{check:${randomUUID()}}`;
      return [...keys.valueLeaseAndBarrier(key), keys.set(key)];
    },
  };
}
