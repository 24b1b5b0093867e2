import { lockAt, QUEUE } from './queue.lua.js';
import { redisScript } from '../../scripting/redis-script.js';

/** Waiters that are sent a message at most, until one was reached. */
const TOLD = 8;

/**
 * Lets locks that hold the ticket end in `rest` ms, and not before: their holder has ended, and they are to stay taken
 * for a while. Never longer than they are, so that a copy of this request that comes late does no harm. The first who
 * waits and can be reached is told.
 *
 * KEYS: lock, fence, queue and waiters of each name. ARGV: 1 ticket, 2 rest in ms, 3 what channels begin with, 4
 * whether PUBLISH counts.
 * Returns 1 when all locks were ours, 0 when one was gone, -1 when one belongs to somebody else.
 */
export const KEEP = redisScript(`
local me, rest, channels, counted = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
${QUEUE}
local announce = function(lock, left)
  for place = 0, ${TOLD - 1} do
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
    -- What becomes of a queue that is no list, or of waiters that are no hash, is no matter of whoever releases.
    pcall(announce, lock, left)
  elseif owner then
    answer = -1
  elseif answer == 1 then
    answer = 0
  end
end
return answer
`);
