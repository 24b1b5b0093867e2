import { fencingScript } from '../../fencing/fencing-script.js';
import { lockAt, QUEUE } from '../scripts/queue.lua.js';

/**
 * ACQUIRE_ALL for a reader: lets it in at all of several locks or at none, under one fencing token.
 *
 * KEYS: lock, fence, queue and waiters of each name.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms, 4 the least token.
 * Returns {1, token}, or {0, index of the first name that is taken, its owner, its PTTL}.
 */
export const READ_ALL = fencingScript(`
local me, ttl = ARGV[2], tonumber(ARGV[3])
${QUEUE}
local locks, token = {}, math.max(micros, tonumber(ARGV[4]))
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.call('GET', lock.key)
  if (not owner or shared(owner)) and redis.call('EXISTS', lock.queue) == 1 then
    if hand_on(lock, '', owner) then owner = redis.call('GET', lock.key) end
  end
  lock.readers = {}
  if owner and owner ~= me then
    local last, readers, place
    if shared(owner) then last, readers, place = readers_in(owner, me) end
    if not last or not place and writer_waits(lock) then
      return {0, (i + 3) / 4, name_of(owner), redis.call('PTTL', lock.key)}
    end
    if place then table.remove(readers, place) end
    lock.readers, token = readers, math.max(token, tonumber(last))
  end
  token = math.max(token, tonumber(unissued(lock)))
  locks[#locks + 1] = lock
end
for _, lock in ipairs(locks) do
  lock.readers[#lock.readers + 1] = {ticket = me, ends = now + ttl}
  store_readers(lock.key, whole(token), lock.readers)
  redis.call('SET', lock.fence, whole(token + 1), 'PX', fence_ttl)
end
return {1, whole(token)}
`);
