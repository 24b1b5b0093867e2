import { lockAt, MORE_TOKENS, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../scripting/redis-script.js';

/**
 * Reserves further tokens for the holders of the process that owns the lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 ticket, 2 the least token.
 * Returns {first token, tokens}, or {} when the lock is not ours any more.
 */
export const MINT = fencingScript(`
local lock, channels, counted = ${lockAt('1')}, '', false
if redis.call('GET', lock.key) ~= ARGV[1] then return {} end
${QUEUE}
return {mint(lock, ${MORE_TOKENS}, tonumber(ARGV[2]))}
`);
