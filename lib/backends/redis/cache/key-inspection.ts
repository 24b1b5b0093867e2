import type { KeyState } from '../../../contracts/cache-store.js';
import { integerOf, leaseOf, type RedisInteger } from '../scripting/redis-replies.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';
import { INSPECT_VALUE } from './scripts/inspect-value.lua.js';

/** The most bytes of an envelope, which may name hundreds of tags. */
const LONGEST_HEAD = 65_536;

type Reply = [ttl: RedisInteger, bytes: RedisInteger, head: Buffer, lease: RedisInteger, writes: RedisInteger];

/** What is stored about the key, in one round trip. */
export async function inspectKey(scripts: ScriptRunner, keys: RedisCacheKeys, key: string): Promise<KeyState> {
  const reply = await scripts.runForBytes(INSPECT_VALUE, keys.valueLeaseAndBarrier(key), [LONGEST_HEAD]);
  const [ttl, bytes, head, lease, writes] = reply as Reply;
  return {
    value: integerOf(ttl) === -2 ? null : { head, bytes: integerOf(bytes), ttl: leaseOf(ttl) },
    lease: integerOf(lease) === -2 ? null : leaseOf(lease),
    barrier: integerOf(writes) > 0,
  };
}
