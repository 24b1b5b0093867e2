import { batchOf, redisScript } from '../../scripting/redis-script.js';
import { EXPIRE_SOFTLY } from './expire-softly.lua.js';

/**
 * Deletes the value or marks it as stale, cancels the load lease, publishes the change, and begins or ends a barrier.
 *
 * A barrier is a sorted set: the token of a write is the member, the time (ms) when the barrier ends by itself the
 * score.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the key's name in messages, the token of a barrier to begin (or empty), its duration in
 * ms, the token of a barrier to end (or empty), and the time since when the value counts as stale (empty: delete the
 * value).
 * Returns for each call 1 when there was a value, else 0.
 */
export const INVALIDATE = redisScript(`${EXPIRE_SOFTLY}
local function invalidate(k, a)
  local found = 1
  if ARGV[a + 4] == '' or not expire_softly(KEYS[k], ARGV[a + 4]) then found = redis.call('UNLINK', KEYS[k]) end
  redis.call('DEL', KEYS[k + 1])
  if ARGV[a + 3] ~= '' then redis.call('ZREM', KEYS[k + 2], ARGV[a + 3]) end
  if ARGV[a + 1] ~= '' then
    local now = redis.call('TIME')
    redis.call('ZADD', KEYS[k + 2], 'GT', now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[a + 2], ARGV[a + 1])
    redis.call('PEXPIREAT', KEYS[k + 2], redis.call('ZRANGE', KEYS[k + 2], -1, -1, 'WITHSCORES')[2])
  end
  redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[a])
  return found
end
${batchOf('invalidate', { keys: 3, args: 5, shared: 1 })}`);
