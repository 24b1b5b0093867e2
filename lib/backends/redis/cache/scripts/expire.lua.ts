import { redisScript } from '../../scripting/redis-script.js';

/**
 * Lets a value live for its new `ttl` from now, and tells everybody: a first level may have it for longer.
 *
 * KEYS: value.
 * ARGV: channel, time to live in ms, the name of the key in messages.
 * Returns 1, or 0 when there is no value.
 */
export const EXPIRE = redisScript(`
local found = redis.call('PEXPIRE', KEYS[1], ARGV[2])
if found == 1 then redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[3]) end
return found
`);
