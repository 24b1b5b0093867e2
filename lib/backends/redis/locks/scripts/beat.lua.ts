import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * The heartbeat of a waiter: takes the lock if it has become free, otherwise tells its owner again that a process
 * waits. Never queues a ticket; a waiter that is no longer in the list, for example after an eviction, has to queue
 * again.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE), 2 ticket.
 * Returns what ACQUIRE_OR_ENQUEUE returns (to a reader: READ_OR_ENQUEUE), or {-1} when the ticket is no longer in the
 * queue.
 */
export const BEAT = fencingScript(`
local lock, me = ${lockAt('1')}, ARGV[2]
${QUEUE}
local owner = redis.call('GET', lock.key)
if owner == me then return granted(lock, mint(lock)) end
local mine = share_of(lock, owner, me)
if mine then return mine end
local alive, deaf, purpose = waiter(lock, me)
if not alive then return {-1} end
if redis.call('HLEN', lock.waiters) > redis.call('LLEN', lock.queue) and not redis.call('LPOS', lock.queue, me) then
  leave(lock, me)
  return {-1}
end
deaf = beat(lock, me, deaf, purpose)
if not owner or shared(owner) then
  local ticket, token, count = hand_on(lock, me, owner)
  if ticket == me and reads(me) then return share_of(lock, redis.call('GET', lock.key), me) end
  if ticket == me then return granted(lock, token, count) end
end
-- Of those that wait for readers, only a writer may ask them to end.
if owner and not (reads(me) and shared(owner)) then want(lock, owner, me, select(2, parts(purpose))) end
return busy(lock, me, deaf)
`);
