import { redisScript } from '../../scripting/redis-script.js';

/**
 * Checks for each of several lists of positions whether all its bits are set.
 *
 * KEYS: 1 bits. ARGV: 1 time to live in ms, 2 length of each list, then the positions of all lists.
 * Returns 1 or 0 for each list, or nil when the filter does not exist.
 */
export const HAS_BITS = redisScript(`
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return false end
if left < ARGV[1] / 2 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local answers, length = {}, tonumber(ARGV[2])
for first = 3, #ARGV, length do
  local all = 1
  for i = first, first + length - 1 do
    if redis.call('GETBIT', KEYS[1], ARGV[i]) == 0 then
      all = 0
      break
    end
  end
  answers[#answers + 1] = all
end
return answers
`);
