import { redisScript } from '../../scripting/redis-script.js';

/**
 * Reads limits without taking of them.
 *
 * KEYS: one for each limit. ARGV: for each, its capacity in µs.
 * Returns for each the µs until all of its units are back.
 */
export const PEEK = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = {}
for i, key in ipairs(KEYS) do
  local used = (tonumber(redis.call('GET', key) or 0) or 0) - now
  answer[i] = math.min(math.max(0, used), tonumber(ARGV[i]))
end
return answer
`);
