import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../scripting/redis-script.js';

/**
 * Frees the lock whoever owns it, tells the owner, and hands the lock on to the first who waits for it.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 what channels begin with, 2 whether PUBLISH counts.
 * Returns the owner, or nil when there was none.
 */
export const FORCE_RELEASE = fencingScript(`
local lock, channels, counted = ${lockAt('1')}, ARGV[1], ARGV[2] == '1'
local owner = redis.call('GET', lock.key)
if not owner then return false end
${QUEUE}
redis.call('DEL', lock.key)
tell('revoked', owner, '')
hand_on(lock, '')
return owner
`);
