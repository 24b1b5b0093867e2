import { redisScript } from '../../scripting/redis-script.js';

/**
 * KEYS: 1 bits. ARGV: 1 time to live in ms, 2 how many positions one list has, then the positions of one list after the
 * other.
 * Returns for each list 1 when all its bits are set, else 0; or nil when there are no bits.
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
