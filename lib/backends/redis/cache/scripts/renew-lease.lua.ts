import { redisScript } from '../../scripting/redis-script.js';

/**
 * Extends the lease so that it lasts at least its length from now, if the load still has it.
 *
 * KEYS: lease.
 * ARGV: token, lease in ms.
 * Returns 1, or 0 when the load has lost the lease.
 */
export const RENEW_LEASE = redisScript(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 2) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
`);
