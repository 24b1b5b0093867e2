import { redisScript } from '../../scripting/redis-script.js';

/**
 * Extends a barrier so that it lasts at least the duration from now.
 *
 * KEYS: barrier.
 * ARGV: token, duration in ms.
 * Returns 1, or 0 when it had ended and values may have been stored since.
 */
export const RENEW_BARRIER = redisScript(`
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= at then return 0 end
redis.call('ZADD', KEYS[1], 'GT', at + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
return 1
`);
