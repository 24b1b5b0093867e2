import type { TokenRange } from '../../../contracts/lock-requests.js';

/** A client of the application may have the option `stringNumbers` of ioredis on. */
export type RedisInteger = number | string;

export function integerOf(reply: RedisInteger): number {
  return Number(reply);
}

/** Milliseconds of lease from a PTTL: `Infinity` where the key has no expiry, 0 where there is no key. */
export function leaseOf(pttl: RedisInteger | undefined): number {
  const remaining = Number(pttl);
  return remaining === -1 ? Infinity : Math.max(0, remaining);
}

export function tokenRange([first, count]: readonly (RedisInteger | undefined)[]): TokenRange {
  return { first: Number(first), count: Number(count) };
}
