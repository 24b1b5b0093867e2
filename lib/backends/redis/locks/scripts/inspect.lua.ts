import { redisScript } from '../../scripting/redis-script.js';

/**
 * Reads the state of a lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * Returns {owner, PTTL, first token not yet issued or an empty string, waiters}, or an empty list when the lock is
 * free.
 */
export const INSPECT = redisScript(`
local owner = redis.call('GET', KEYS[1])
if not owner then return {} end
return {owner, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', redis.call('LLEN', KEYS[3])}
`);
