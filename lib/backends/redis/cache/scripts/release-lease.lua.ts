import { redisScript } from '../../scripting/redis-script.js';

/**
 * Ends the lease of a load that stores nothing, if the load still has it.
 *
 * KEYS: lease.
 * ARGV: channel, token, the key's name in messages.
 */
export const RELEASE_LEASE = redisScript(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 2) ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[3]) end
return 1
`);
