import { redisScript } from '../../scripting/redis-script.js';

/**
 * Returns the value and deletes it, cancels the load lease, and publishes the change.
 *
 * KEYS: value, lease.
 * ARGV: channel, the name of the key in messages.
 * Returns the value, nil when there is none; also when it is sent again.
 */
export const TAKE = redisScript(`
local value = redis.call('GET', KEYS[1])
redis.call('UNLINK', KEYS[1])
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[2])
return value
`);
