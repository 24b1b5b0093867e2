import { randomUUID } from 'node:crypto';
import type { Probe, Rights } from '../redis/start-up/rights.js';
import { redlockKeys } from './redlock-keys.js';

/** Every command of the scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['HSET', 3, '1', '1'],
  ['PEXPIRE', 3, '1'],
  ['HGET', 3, '1'],
  ['HGETALL', 3],
  ['HLEN', 3],
  ['HDEL', 3, '1'],
];

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function rightsOfRedlock(prefix: string | undefined, clientPrefix = ''): Rights {
  return {
    whose: 'locks',
    evictable: false,
    keyPatterns: [`${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`],
    probes: PROBES,
    keys: () => Object.values(redlockKeys({ prefix, name: `check:${randomUUID()}` })),
  };
}
