import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Adds to a number and cancels the load lease. Only a new number gets a time to live.
 *
 * Publishes the end of a lease that another load waits for, but no change: first levels never hold numbers.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the number to add, the time to live in ms of a new number (empty: none), and the key's
 * name in messages.
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
