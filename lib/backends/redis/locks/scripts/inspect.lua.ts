import { MOST_WAITERS } from '../../../../contracts/lock-requests.js';
import { READERS_NOW } from '../readers/readers.lua.js';
import { redisScript } from '../../scripting/redis-script.js';

/**
 * Reads the state of a lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * Returns {owner, PTTL, first token not yet issued or an empty string, length of the queue, readers, {ticket, ...}}, or
 * an empty list for a free lock. The owner is `readers` where they hold it. The tickets are those at the head of the
 * queue, in their order, without the waiters that the queue drops when their turn comes. LINDEX, because scripts of the
 * queue need it as well: a user whose rights allow those can inspect.
 */
export const INSPECT = redisScript(`
local owner = redis.call('GET', KEYS[1])
if not owner then return {} end
${READERS_NOW}
local count = 0
if shared(owner) then
  local _, readers = readers_in(owner)
  owner, count = 'readers', #readers
end
local waiters = {}
for place = 0, ${MOST_WAITERS - 1} do
  local ticket = redis.call('LINDEX', KEYS[3], place)
  if not ticket then break end
  local alive = string.match(redis.call('HGET', KEYS[4], ticket) or '', '^%d+')
  if alive and tonumber(alive) > now then waiters[#waiters + 1] = ticket end
end
local waiting = redis.call('LLEN', KEYS[3])
return {owner, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', waiting, count, waiters}
`);
