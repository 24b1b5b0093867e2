import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * Takes the lock from its owner, tells the owner, and hands the lock to the first waiter.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE).
 * Returns the owner, or nil when there was none.
 */
export const FORCE_RELEASE = fencingScript(`
local lock = ${lockAt('1')}
local owner = redis.call('GET', lock.key)
if not owner then return false end
${QUEUE}
redis.call('DEL', lock.key)
tell('revoked', owner, '')
hand_on(lock, '')
return owner
`);
