import { redisScript } from '../../redis/scripting/redis-script.js';
import { callsOf } from './calls-of.lua.js';

/**
 * Renews leases, each for at least its ttl from now, if all its names hold its ticket at this node. A name that is gone
 * stays gone.
 *
 * KEYS, for each name: lock, wanted. ARGV, for each call: ticket, ttl in ms, number of names.
 * Returns for each call {ms left, number of other tickets that wait}; {-1} when another ticket has one of the names;
 * {0} when one is free and none has another ticket.
 */
export const RENEW = redisScript(`
local renew = function(first, last, arg)
  local me, ttl, free = ARGV[arg], tonumber(ARGV[arg + 1]), false
  for i = first, last, 2 do
    local owner = redis.pcall('GET', KEYS[i])
    if owner and owner ~= me then return {-1} end
    free = free or not owner
  end
  if free then return {0} end
  local least, waiting = math.huge, 0
  for i = first, last, 2 do
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < ttl then
      redis.call('PEXPIRE', KEYS[i], ttl)
      left = ttl
    end
    -- A key without an expiry (somebody called PERSIST) is ours until the next renewal.
    least = math.min(least, left < 0 and ttl or left)
    -- A node that refused the ticket, and had the name free later, has the owner among the waiters.
    redis.pcall('HDEL', KEYS[i + 1], me)
    local length = redis.pcall('HLEN', KEYS[i + 1])
    if type(length) == 'number' then waiting = waiting + length end
  end
  return {least, waiting}
end
${callsOf('renew', { keys: 2, args: 2 })}`);
