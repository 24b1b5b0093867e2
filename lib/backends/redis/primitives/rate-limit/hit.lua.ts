import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Counts a hit in a fixed window. The key holds the hits of the window, or `b` and the hits that blocked it.
 *
 * KEYS, for each call: the count.
 * ARGV, for each call: the length of the window in ms, the most hits, how long the key is blocked in ms (0: until the
 * window ends).
 * Returns for each call the hits, the ms until the window or the block ends, and whether the key is blocked (1 or 0).
 *
 * A call that is sent twice counts twice. A hit on a key that is blocked beyond its window does not count.
 */
export const HIT = redisScript(`
-- The ms left of the key. One that lost its expiry, as by PERSIST, gets it again: it would count for ever.
local function left_of(key, ms)
  local left = redis.call('PTTL', key)
  if left >= 0 then return left end
  redis.call('PEXPIRE', key, ms)
  return tonumber(ms)
end

local function hit(key, arg)
  key = KEYS[key]
  local window, most, block = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local count = redis.call('GET', key)
  if count and string.sub(count, 1, 1) == 'b' then
    return {tonumber(string.sub(count, 2)), left_of(key, block > 0 and ARGV[arg + 2] or window), 1}
  end
  local hits = redis.call('INCR', key)
  local blocked = hits > most
  if blocked and block > 0 then
    redis.call('SET', key, 'b' .. hits, 'PX', ARGV[arg + 2])
    return {hits, block, 1}
  end
  return {hits, left_of(key, window), blocked and 1 or 0}
end

${batchOf('hit', { keys: 1, args: 3, shared: 0 })}
`);
