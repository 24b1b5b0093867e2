import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * Takes all of several locks or none, and mints one fencing token for them. Never queues, and never overtakes a waiter
 * that can be reached. A single lock usually takes the path of ACQUIRE_OR_ENQUEUE.
 *
 * KEYS: lock, fence, queue and waiters of each name.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms, 4 the least token.
 * Returns {1, token}, or {0, index of the first name that is taken, its owner, its PTTL}.
 *
 * The token is the largest of the first tokens not yet issued and Redis TIME in µs, so that it rises even after a fence
 * has expired or was lost. A lock that holds the ticket was granted to an earlier copy of this request and is granted
 * again.
 */
export const ACQUIRE_ALL = fencingScript(`
local me = ARGV[2]
${QUEUE}
local locks, token = {}, math.max(micros, tonumber(ARGV[4]))
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.call('GET', lock.key)
  if not owner and redis.call('EXISTS', lock.queue) == 1 then owner = hand_on(lock, '') end
  if owner and owner ~= me then return {0, (i + 3) / 4, name_of(owner), redis.call('PTTL', lock.key)} end
  token = math.max(token, tonumber(unissued(lock)))
  locks[#locks + 1] = lock
end
for _, lock in ipairs(locks) do
  redis.call('SET', lock.key, me, 'PX', ARGV[3])
  redis.call('SET', lock.fence, whole(token + 1), 'PX', fence_ttl)
end
return {1, whole(token)}
`);
