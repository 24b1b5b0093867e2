import { lockAt, QUEUE } from './queue.lua.js';
import { redisScript } from './redis-script.js';

/**
 * Frees those locks that hold the ticket, and hands each on to the first who waits for it. A ticket that waits leaves the
 * queue.
 *
 * KEYS: lock, fence, queue and waiters of each name. ARGV: 1 ticket, 2 what channels begin with, 3 whether PUBLISH counts.
 * Returns 1 when all were ours, 0 when one or more were gone, -1 when one or more belong to somebody else.
 */
export const RELEASE = redisScript(`
local answer, queued = 1, {}
for i = 1, #KEYS, 4 do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[i])
  elseif owner then
    answer = -1
  elseif answer == 1 then
    answer = 0
  end
  if redis.call('EXISTS', KEYS[i + 2]) == 1 then queued[#queued + 1] = i end
end
if #queued == 0 then return answer end
local channels, counted = ARGV[2], ARGV[3] == '1'
${QUEUE}
for _, i in ipairs(queued) do
  local lock = ${lockAt('i')}
  leave(lock, ARGV[1])
  if redis.call('EXISTS', lock.key) == 0 then hand_on(lock, '') end
end
return answer
`);
