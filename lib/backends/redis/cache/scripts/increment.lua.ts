import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Adds to a number and cancels the load lease. A new number expires after a time.
 *
 * Publishes only the end of the lease, for those who wait for it: numbers are never in a first level.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call what to add, the time to live in ms of a new number (empty: no end), and the name of the
 * key in messages.
 * Returns for each call the sum.
 */
export const INCREMENT = redisScript(`
local function increment(k, a)
  local begins = redis.call('EXISTS', KEYS[k]) == 0
  local sum = redis.call('INCRBY', KEYS[k], ARGV[a])
  if begins and ARGV[a + 1] ~= '' then redis.call('PEXPIRE', KEYS[k], ARGV[a + 1]) end
  local held = redis.call('GET', KEYS[k + 1])
  if held then
    redis.call('DEL', KEYS[k + 1])
    if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  end
  return sum
end
${batchOf('increment', { keys: 2, args: 3, shared: 1 })}`);
