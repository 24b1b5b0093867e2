import { batchOf, redisScript } from '../../scripts/redis-script.js';

/**
 * Stores a value, takes the lease from whoever loads one, and tells everybody.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the name of the key in messages, the time to live in ms, 1 to leave a value that is there (else empty), and
 * the value.
 * Returns for each call 1, or 0 when there was a value to leave.
 */
export const SET = redisScript(`
local function set(k, a)
  if ARGV[a + 2] ~= '' and redis.call('EXISTS', KEYS[k]) == 1 then return 0 end
  redis.call('SET', KEYS[k], ARGV[a + 3], 'PX', ARGV[a + 1])
  redis.call('DEL', KEYS[k + 1])
  redis.call('PUBLISH', string.sub(ARGV[1], 2), 'i' .. ARGV[a])
  return 1
end
${batchOf('set', { keys: 2, args: 4 })}`);
