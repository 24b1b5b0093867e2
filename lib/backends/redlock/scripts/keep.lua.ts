import { redisScript } from '../../redis/scripting/redis-script.js';
import { callsOf } from './calls-of.lua.js';

/**
 * Cuts the lease of those of the names that hold the ticket to \`rest\` ms; never lengthens one.
 *
 * KEYS: lock of each name. ARGV: ticket, rest in ms, number of names.
 * Returns 1 when all names held the ticket, 0 when one was free, -1 when one holds another ticket.
 */
export const KEEP = redisScript(`
local keep = function(first, last, arg)
  local me, rest, answer = ARGV[arg], tonumber(ARGV[arg + 1]), 1
  for i = first, last do
    local owner = redis.pcall('GET', KEYS[i])
    if owner == me then
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 or left > rest then redis.call('PEXPIRE', KEYS[i], rest) end
    elseif owner then
      answer = -1
    elseif answer == 1 then
      answer = 0
    end
  end
  return answer
end
${callsOf('keep', { keys: 1, args: 2 })}`);
