import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Gives the lease of a value to a load, unless there is a value, a write is under way, or another load has it.
 *
 * The lease is a string: whether somebody waits for its end (0 or 1), and the token of the load.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the token, the lease in ms, 1 to refresh a value that is there (else
 * empty), what that value begins with (or empty), and 1 to be told when the lease of another load ends (else empty).
 * Returns for each call: the time in µs when the lease began; 0 there is a value; -1 a write is under way; -2 and less:
 * the other lease ends in that many ms after 2.
 *
 * Sent twice it answers the same, as the token is its own.
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
