import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../scripting/redis-script.js';

/**
 * Takes all locks or none, and mints one fencing token for them. It never queues, and passes nobody who waits and can
 * be reached.
 *
 * KEYS: lock, fence, queue and waiters of each name.
 * ARGV: 1 ticket, 2 lease in ms, 3 what channels begin with, 4 whether PUBLISH counts, 5 the least token.
 * Returns {1, token}, or {0, index of the first name found taken, its owner, its PTTL}.
 *
 * The token is the largest of the first tokens not yet issued and Redis TIME in µs, so that it rises also after a fence
 * expired or was lost. A lock that holds our own ticket was granted to an earlier send of this very request: it is
 * granted again.
 */
export const ACQUIRE = fencingScript(`
local me, channels, counted = ARGV[1], ARGV[3], ARGV[4] == '1'
${QUEUE}
local locks, token = {}, math.max(micros, tonumber(ARGV[5]))
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.call('GET', lock.key)
  if not owner and redis.call('EXISTS', lock.queue) == 1 then owner = hand_on(lock, '') end
  if owner and owner ~= me then return {0, (i + 3) / 4, owner, redis.call('PTTL', lock.key)} end
  token = math.max(token, tonumber(unissued(lock)))
  locks[#locks + 1] = lock
end
for _, lock in ipairs(locks) do
  redis.call('SET', lock.key, me, 'PX', ARGV[2])
  redis.call('SET', lock.fence, whole(token + 1), 'PX', fence_ttl)
end
return {1, whole(token)}
`);
