import { lockAt, QUEUE } from './queue.lua.js';
import { redisScript } from '../../scripting/redis-script.js';

/** How many waiters are sent a message at most, until one is reached. */
const MOST_TOLD = 8;

/**
 * Cuts the lease of the locks that hold the ticket to `rest` ms: their holder has ended, and they stay taken for that
 * time (`minHold`). Never lengthens a lease, so a late copy of this request does no harm. Sends a message to the first
 * waiter that can be reached.
 *
 * KEYS: lock, fence, queue and waiters of each name. ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 rest in ms.
 * Returns 1 when all locks held the ticket, 0 when one was free, -1 when one holds another ticket.
 */
export const KEEP = redisScript(`
local me, rest = ARGV[2], tonumber(ARGV[3])
${QUEUE}
local announce = function(lock, left)
  for place = 0, ${MOST_TOLD - 1} do
    local ticket = redis.call('LINDEX', lock.queue, place)
    if not ticket then return end
    local alive, _, purpose = waiter(lock, ticket)
    if alive and alive > now then
      local heard = tell('ends', ticket, ' ' .. whole(left) .. ' ' .. select(2, parts(purpose)))
      if heard > 0 or not counted then return end
    end
  end
end
local answer = 1
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.pcall('GET', lock.key)
  if owner == me then
    local left = redis.call('PTTL', lock.key)
    if left < 0 or left > rest then
      redis.call('PEXPIRE', lock.key, rest)
      left = rest
    end
    -- pcall: a queue or waiters of a foreign type must not fail the release.
    pcall(announce, lock, left)
  elseif owner then
    answer = -1
  elseif answer == 1 then
    answer = 0
  end
end
return answer
`);
