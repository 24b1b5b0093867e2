import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Stores a value, cancels the load lease and publishes the change, unless the deadline has passed or a write is under
 * way.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the key's name in messages, the time to live in ms, 1 to keep an existing value (else
 * empty), the deadline in ms by the server's clock (or empty), and the value.
 * Returns for each call 1; 0 when it kept an existing value; 2 when a write is under way; or, after the deadline, the
 * server's time in ms as a negative number.
 */
export const SET = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function set(k, a)
  local before = tonumber(ARGV[a + 3])
  if before and now >= before then return -now end
  if ARGV[a + 2] ~= '' and redis.call('EXISTS', KEYS[k]) == 1 then return 0 end
  if redis.call('EXISTS', KEYS[k + 2]) == 1 then
    redis.call('ZREMRANGEBYSCORE', KEYS[k + 2], '-inf', string.format('%.0f', now))
    if redis.call('ZCARD', KEYS[k + 2]) > 0 then return 2 end
  end
  redis.call('SET', KEYS[k], ARGV[a + 4], 'PX', ARGV[a + 1])
  redis.call('DEL', KEYS[k + 1])
  redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[a])
  return 1
end
${batchOf('set', { keys: 3, args: 5, shared: 1 })}`);
