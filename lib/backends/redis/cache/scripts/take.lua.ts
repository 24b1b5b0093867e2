import { redisScript } from '../../scripting/redis-script.js';

/**
 * Returns the value and deletes it, cancels the load lease, and publishes the change.
 *
 * KEYS: value, lease.
 * ARGV: channel, the key's name in messages.
 * Returns the value, or nil when there is none. A repeated request gets nil.
 */
export const TAKE = redisScript(`
local value = redis.call('GET', KEYS[1])
redis.call('UNLINK', KEYS[1])
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[2])
return value
`);
