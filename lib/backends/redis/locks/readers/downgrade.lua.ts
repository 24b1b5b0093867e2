import { fencingScript } from '../../fencing/fencing-script.js';
import { lockAt, QUEUE } from '../scripts/queue.lua.js';

/**
 * Makes the owner of a lock a reader of it, under the same ticket and lease, and lets in the readers that wait before
 * the next writer.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms for a lock without an expiry.
 * Returns 1 when the ticket reads, 0 when it does not own the lock.
 */
export const DOWNGRADE = fencingScript(`
local lock, me = ${lockAt('1')}, ARGV[2]
local owner = redis.call('GET', lock.key)
${QUEUE}
if share_of(lock, owner, me) then return 1 end
if owner ~= me then return 0 end
local left = redis.call('PTTL', lock.key)
if left < 0 then left = tonumber(ARGV[3]) end
store_readers(lock.key, mint(lock, 1), {{ticket = me, ends = now + left}})
hand_on(lock, '', redis.call('GET', lock.key))
return 1
`);
