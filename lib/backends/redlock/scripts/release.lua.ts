import { redisScript } from '../../redis/scripting/redis-script.js';
import { callsOf } from './calls-of.lua.js';

/**
 * Frees those of the names that hold the ticket. A ticket that waits for a name leaves the waiters.
 *
 * KEYS, for each name: lock, wanted. ARGV, for each call: ticket, number of names.
 * Returns for each call 1 when all names held the ticket, 0 when one was free, -1 when one holds another ticket.
 */
export const RELEASE = redisScript(`
-- The usual path; where the owner is still among the waiters, its mark ends within moments.
if #KEYS == 2 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
local release = function(first, last, arg)
  local me, answer = ARGV[arg], 1
  for i = first, last, 2 do
    -- pcall: a key of a foreign type must not fail the release of the other names.
    local owner = redis.pcall('GET', KEYS[i])
    if owner == me then
      redis.call('DEL', KEYS[i])
    elseif owner then
      answer = -1
    elseif answer == 1 then
      answer = 0
    end
    redis.pcall('HDEL', KEYS[i + 1], me)
  end
  return answer
end
${callsOf('release', { keys: 2, args: 1 })}`);
