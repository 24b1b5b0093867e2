import { FENCE_EXPIRY, lockAt, QUEUE } from './queue.lua.js';
import { redisScript } from './redis-script.js';

/**
 * Takes the lock if it is free and nobody waits for it; else joins its queue, or hands it on to the first who waits.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 ticket, 2 ms of lease when it is granted at once, 3 what channels begin with, 4 whether PUBLISH counts (1 or 0),
 * 5 ms of lease when it is handed on later, or an empty string to try once and never queue, 6 name.
 * Returns {1, first token, tokens, PTTL, waiters}, or {0, first token not yet issued, whether this ticket is the first in
 * the queue (1 or 0), PTTL, owner}.
 *
 * A ticket that owns the lock was granted it by an earlier send of this very request, and is granted it again.
 */
export const ENQUEUE = redisScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if redis.call('EXISTS', KEYS[3]) == 0 then
    local time = redis.call('TIME')
    local token = time[1] * 1000000 + time[2]
    local fence = redis.call('SET', KEYS[2], string.format('%.0f', token + 1), 'PX', ${FENCE_EXPIRY}, 'GET')
    if fence and tonumber(fence) > token then
      token = tonumber(fence)
      redis.call('SET', KEYS[2], string.format('%.0f', token + 1), 'PX', ${FENCE_EXPIRY})
    end
    return {1, string.format('%.0f', token), 1, ARGV[2], 0}
  end
  redis.call('DEL', KEYS[1])
end
local lock, me, channels, counted, claim, name = ${lockAt('1')}, ARGV[1], ARGV[3], ARGV[4] == '1', ARGV[5], ARGV[6]
${QUEUE}
local owner = redis.call('GET', lock.key)
if owner == me then return granted(lock, mint(lock)) end
if not owner then
  local alive, skips, mine = waiter(lock, me)
  if alive then beat(lock, me, skips, mine, name) end
  local ticket, token, count = hand_on(lock, me)
  if ticket == me then return granted(lock, token, count) end
  if not ticket and redis.call('EXISTS', lock.queue) == 0 then
    redis.call('SET', lock.key, me, 'PX', ARGV[2])
    return granted(lock, mint(lock))
  end
  owner = ticket
end
if claim ~= '' then
  join(lock, me, claim, name)
  if owner then tell('wanted', owner, '') end
end
return busy(lock, me)
`);
