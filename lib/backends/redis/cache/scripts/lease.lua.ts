import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Grants the load lease of a key, unless there is a value, a write is under way, or another load holds the lease.
 *
 * The lease is a string: 1 or 0, whether another load waits for its end, and the token of the load.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the token, the lease in ms, 1 to refresh an existing value (else empty), what that value
 * begins with (or empty), and 1 to publish the end of another load's lease (else empty).
 * Returns for each call: the time in µs when the lease began; 0 when there is a value; -1 when a write is under way;
 * or, when another load holds the lease, -2 minus the ms that are left of it.
 *
 * A repeated request gets the same answer, because its token holds the lease.
 */
export const LEASE = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function lease(k, a)
  local token, refresh, seen = ARGV[a], ARGV[a + 2] ~= '', ARGV[a + 3]
  if redis.call('EXISTS', KEYS[k], KEYS[k + 2]) > 0 then
    local there = redis.call('EXISTS', KEYS[k]) == 1
    if there and (not refresh or seen ~= '' and redis.call('GETRANGE', KEYS[k], 0, #seen - 1) ~= seen) then return 0 end
    redis.call('ZREMRANGEBYSCORE', KEYS[k + 2], '-inf', string.format('%.0f', now / 1000))
    if redis.call('ZCARD', KEYS[k + 2]) > 0 then return -1 end
  end
  if redis.call('SET', KEYS[k + 1], '0' .. token, 'PX', ARGV[a + 1], 'NX') then return now end
  local held = redis.call('GET', KEYS[k + 1])
  if string.sub(held, 2) == token then return now end
  if ARGV[a + 4] ~= '' then redis.call('SET', KEYS[k + 1], '1' .. string.sub(held, 2), 'KEEPTTL') end
  return -2 - math.max(0, redis.call('PTTL', KEYS[k + 1]))
end
${batchOf('lease', { keys: 3, args: 5, shared: 1 })}`);
