import { redisScript } from '../../scripting/redis-script.js';

/**
 * Sets the time to live of a value, and publishes the change because first levels may hold the value for longer.
 *
 * KEYS: value.
 * ARGV: channel, time to live in ms, the key's name in messages.
 * Returns 1, or 0 when there is no value.
 */
export const EXPIRE = redisScript(`
local found = redis.call('PEXPIRE', KEYS[1], ARGV[2])
if found == 1 then redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[3]) end
return found
`);
