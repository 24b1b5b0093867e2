import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../scripting/redis-script.js';

/**
 * The heartbeat of a waiter. It takes a lock that has fallen free, and tells the owner again that somebody waits; it
 * never puts a ticket into the queue. A waiter without its place in the list, as after an eviction, is told to queue
 * anew.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 ticket, 2 what channels begin with, 3 whether PUBLISH counts.
 * Returns what ENQUEUE returns, or {-1} when the ticket is not in the queue any more.
 */
export const BEAT = fencingScript(`
local lock, me, channels, counted = ${lockAt('1')}, ARGV[1], ARGV[2], ARGV[3] == '1'
${QUEUE}
local owner = redis.call('GET', lock.key)
if owner == me then return granted(lock, mint(lock)) end
local alive, deaf, purpose = waiter(lock, me)
if not alive then return {-1} end
if redis.call('HLEN', lock.waiters) > redis.call('LLEN', lock.queue) and not redis.call('LPOS', lock.queue, me) then
  leave(lock, me)
  return {-1}
end
deaf = beat(lock, me, deaf, purpose)
if not owner then
  local ticket, token, count = hand_on(lock, me)
  if ticket == me then return granted(lock, token, count) end
else
  tell('wanted', owner, ' ' .. select(2, parts(purpose)))
end
return busy(lock, me, deaf)
`);
