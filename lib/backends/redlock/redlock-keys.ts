import { randomUUID } from 'node:crypto';
import type { AcquireSeveralRequest, NameRequest } from '../../contracts/lock-backend.js';
import type { Probe, Rights } from '../redis/connection/server-check.js';
import { lockKey } from '../redis/locks/redis-lock-keys.js';

/** The keys of a name: the lock, the first fencing token not yet issued, and the tickets that wait. */
interface RedlockKeys {
  readonly lock: string;
  readonly fence: string;
  readonly wanted: string;
}

export function redlockKeys(request: NameRequest): RedlockKeys {
  const lock = lockKey(request);
  return { lock, fence: `${lock}:fence`, wanted: `${lock}:wanted` };
}

/** The keys of several names, one after the other, as ACQUIRE and MINT take them. */
export function acquireKeys({ prefix, names }: Pick<AcquireSeveralRequest, 'prefix' | 'names'>): readonly string[] {
  const keys: string[] = [];
  for (const name of names) {
    const { lock, fence, wanted } = redlockKeys({ prefix, name });
    keys.push(lock, fence, wanted);
  }
  return keys;
}

/** The keys of a name, as RELEASE and RENEW take them. */
export type ReleaseKeys = readonly [lock: string, wanted: string];

export function releaseKeys(request: NameRequest): ReleaseKeys {
  const { lock, wanted } = redlockKeys(request);
  return [lock, wanted];
}

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function redlockRights(prefix: string | undefined, clientPrefix = ''): Rights {
  return {
    whose: 'locks',
    evictable: false,
    keyPatterns: [`${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`],
    probes: PROBES,
    keys: () => Object.values(redlockKeys({ prefix, name: `check:${randomUUID()}` })),
  };
}

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
