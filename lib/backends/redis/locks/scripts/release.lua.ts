import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';
import { batchOf } from '../../scripting/redis-script.js';

/**
 * Frees the lock if it holds the ticket, and hands it to the first waiter. A ticket that waits leaves the queue.
 *
 * KEYS, for each call: lock, fence, queue, waiters.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket.
 * Returns for each call 1 when the lock held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const RELEASE = fencingScript(`
if #KEYS == 4 and redis.pcall('GET', KEYS[1]) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local hand_over

local queue = function()
  ${QUEUE}
  return function(lock, me)
    leave(lock, me)
    if redis.call('EXISTS', lock.key) == 0 then hand_on(lock, '') end
  end
end

local release = function(key, arg)
  local owner, answer = redis.pcall('GET', KEYS[key]), -1
  if owner == ARGV[arg] then
    redis.call('DEL', KEYS[key])
    answer = 1
  elseif not owner then
    answer = 0
  end
  if redis.call('EXISTS', KEYS[key + 2]) == 1 then
    hand_over = hand_over or queue()
    -- A queue or waiters of a foreign type must not fail the release.
    pcall(hand_over, ${lockAt('key')}, ARGV[arg])
  end
  return answer
end

${batchOf('release', { keys: 4, args: 1, shared: 1 })}
`);
