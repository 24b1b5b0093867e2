import { redisScript } from './redis-script.js';

/**
 * Deletes those locks that hold the ticket.
 *
 * KEYS: the locks. ARGV: 1 ticket.
 * Returns 1 when all were ours, 0 when one or more were gone, -1 when one or more belong to somebody else.
 */
export const RELEASE = redisScript(`
local answer = 1
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[i])
  elseif owner then
    answer = -1
  elseif answer == 1 then
    answer = 0
  end
end
return answer
`);
