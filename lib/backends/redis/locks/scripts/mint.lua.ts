import { lockAt, MORE_TOKENS, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * Reserves further tokens for the holders of the process that owns the lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 the least token.
 * Returns {first token, tokens}, or {} when the lock no longer holds the ticket.
 */
export const MINT = fencingScript(`
local lock = ${lockAt('1')}
if redis.call('GET', lock.key) ~= ARGV[2] then return {} end
${QUEUE}
return {mint(lock, ${MORE_TOKENS}, tonumber(ARGV[3]))}
`);
