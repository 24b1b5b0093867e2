import { redisScript } from '../../scripts/redis-script.js';

/**
 * Gives a tag a new version, greater than all that it had, so that what was stored with another one no longer counts.
 *
 * KEYS: tag.
 * ARGV: channel, the tag, how long in ms the version must be remembered at least.
 */
export const INVALIDATE_TAG = redisScript(`
local now = redis.call('TIME')
local version = math.max(now[1] * 1000000 + now[2], math.abs(tonumber(redis.call('GET', KEYS[1])) or 0) + 1)
local ttl = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))
redis.call('SET', KEYS[1], string.format('%.0f', version), 'PX', string.format('%.0f', ttl))
redis.call('PUBLISH', ARGV[1], 't' .. ARGV[2])
return 1
`);
