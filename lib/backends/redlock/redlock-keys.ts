import type { NameRequest, TicketRequest } from '../../contracts/lock-backend.js';
import { lockKey } from '../redis/locks/redis-lock-keys.js';

/** The keys of a name: the lock, the first fencing token not yet issued, and the tickets that wait. */
export interface RedlockKeys {
  readonly lock: string;
  readonly fence: string;
  readonly wanted: string;
}

export function redlockKeys(request: NameRequest): RedlockKeys {
  const lock = lockKey(request);
  return { lock, fence: `${lock}:fence`, wanted: `${lock}:wanted` };
}

/** The keys of several names, one after the other, as ACQUIRE and MINT take them. */
export function acquireKeys({ prefix, names }: TicketRequest): readonly string[] {
  const keys: string[] = [];
  for (const name of names) {
    const { lock, fence, wanted } = redlockKeys({ prefix, name });
    keys.push(lock, fence, wanted);
  }
  return keys;
}

/** Those of RELEASE and RENEW: lock and wanted of each name. */
export function releaseKeys({ prefix, names }: TicketRequest): readonly string[] {
  const keys: string[] = [];
  for (const name of names) {
    const { lock, wanted } = redlockKeys({ prefix, name });
    keys.push(lock, wanted);
  }
  return keys;
}
