import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * Gives the lock to the first waiter, and queues a new ticket of the same process behind the others.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 the new ticket, 4 its `claim:name`.
 * Returns for the new ticket what ACQUIRE_OR_ENQUEUE returns, or {-1} when the lock no longer holds the
 * ticket: then nothing is queued.
 */
export const REQUEUE = fencingScript(`
local lock, me, again = ${lockAt('1')}, ARGV[2], ARGV[3]
if redis.call('GET', lock.key) ~= me then return {-1} end
${QUEUE}
redis.call('DEL', lock.key)
join(lock, again, ARGV[4])
local ticket, token, count = hand_on(lock, again)
if ticket == again then return granted(lock, token, count) end
return busy(lock, again)
`);
