import { randomUUID } from 'node:crypto';
import { PROBES_OF_TEXT, type Probe, type Rights } from '../redis/connection/server-check.js';
import type { LockKeys } from '../redis/locks/redis-lock-keys.js';

/** The keys of a name: the lock, the first fencing token not yet issued, and the tickets that wait. */
interface RedlockKeys {
  readonly lock: string;
  readonly fence: string;
  readonly wanted: string;
}

export function redlockKeys(keys: LockKeys, name: string): RedlockKeys {
  const lock = keys.lock(name);
  return { lock, fence: `${lock}:fence`, wanted: `${lock}:wanted` };
}

/** The keys of several names, one after the other, as ACQUIRE and MINT take them. */
export function acquireKeys(keys: LockKeys, names: readonly string[]): readonly string[] {
  const all: string[] = [];
  for (const name of names) {
    const { lock, fence, wanted } = redlockKeys(keys, name);
    all.push(lock, fence, wanted);
  }
  return all;
}

/** The keys of a name, as RELEASE and RENEW take them. */
export type ReleaseKeys = readonly [lock: string, wanted: string];

export function releaseKeys(keys: LockKeys, name: string): ReleaseKeys {
  const { lock, wanted } = redlockKeys(keys, name);
  return [lock, wanted];
}

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function redlockRights(keys: LockKeys, clientPrefix?: string): Rights {
  const { messages: _none, ...rights } = keys.rights(clientPrefix);
  return { ...rights, probes: PROBES, keys: () => Object.values(redlockKeys(keys, `check:${randomUUID()}`)) };
}

/** Every command of the scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ...PROBES_OF_TEXT,
  ['HSET', 3, '1', '1'],
  ['PEXPIRE', 3, '1'],
  ['HGET', 3, '1'],
  ['HGETALL', 3],
  ['HLEN', 3],
  ['HDEL', 3, '1'],
];
