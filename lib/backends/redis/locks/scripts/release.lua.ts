import { lockAt, QUEUE } from './queue.lua.js';
import { batchOf, fencingScript } from '../../scripting/redis-script.js';

/**
 * Frees the lock if it holds the ticket, and hands it on to the first who waits for it. A ticket that waits leaves the
 * queue.
 *
 * KEYS of each call: lock, fence, queue, waiters.
 * ARGV: 1 whether PUBLISH counts (1 or 0) and what channels begin with; then for each call the ticket.
 * Returns for each call 1 when the lock was ours, 0 when it was gone, -1 when it belongs to somebody else.
 */
export const RELEASE = fencingScript(`
if #KEYS == 4 and redis.pcall('GET', KEYS[1]) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local counted, channels = string.sub(ARGV[1], 1, 1) == '1', string.sub(ARGV[1], 2)
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
    -- What becomes of a queue that is no list, or of waiters that are no hash, is no matter of whoever releases.
    pcall(hand_over, ${lockAt('key')}, ARGV[arg])
  end
  return answer
end

${batchOf('release', { keys: 4, args: 1 })}
`);
