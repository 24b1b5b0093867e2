import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Stores what a load found, if the lease is still its own, and ends the lease.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the token, the time to live in ms, the name of the key in messages, and the value.
 * Returns for each call 1 when it is stored, else 0. Sent twice, it may answer 0 although the first one stored.
 */
export const COMMIT = redisScript(`
local function commit(k, a)
  local held = redis.call('GET', KEYS[k + 1])
  if not held or string.sub(held, 2) ~= ARGV[a] then return 0 end
  redis.call('SET', KEYS[k], ARGV[a + 3], 'PX', ARGV[a + 1])
  redis.call('DEL', KEYS[k + 1])
  if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  return 1
end
${batchOf('commit', { keys: 2, args: 4, shared: 1 })}`);
