import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Stores the value of a load, if the load still has the lease, and ends the lease.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the token, the time to live in ms, the key's name in messages, and the value.
 * Returns for each call 1 when it stored the value, else 0. A repeated request may return 0 although the first one
 * stored.
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
