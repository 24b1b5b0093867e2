import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../scripting/redis-script.js';

/**
 * Gives the lock to the first who waits for it, and queues a new ticket of the same process behind the others.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 ticket, 2 what channels begin with, 3 whether PUBLISH counts, 4 the new ticket, 5 its `claim:name`.
 * Returns for the new ticket what ENQUEUE returns, or {-1} when the lock is not ours any more: nothing is queued then.
 */
export const REQUEUE = fencingScript(`
local lock, me, channels, counted, again = ${lockAt('1')}, ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
if redis.call('GET', lock.key) ~= me then return {-1} end
${QUEUE}
redis.call('DEL', lock.key)
join(lock, again, ARGV[5])
local ticket, token, count = hand_on(lock, again)
if ticket == again then return granted(lock, token, count) end
return busy(lock, again)
`);
