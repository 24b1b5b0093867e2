import type { NameRequest } from '../../../contracts/lock-backend.js';
import { lockKey } from '../lease-table/lock-key.js';

/**
 * The key of an advisory lock: the first 64 bits of the SHA-256, as a signed number. Two names with one key would
 * exclude each other: with a million names in use, one chance in 37 million.
 */
export function advisoryKey(request: NameRequest): string {
  const digits = lockKey(request).slice(2, 18);
  return BigInt.asIntN(64, BigInt(`0x${digits}`)).toString();
}
