import { redisScript } from '../../scripts/redis-script.js';

/**
 * Gives a tag a new version, greater than all that it had, so that what was stored with another one no longer counts; and notes when any
 * tag was invalidated last, in the same way.
 *
 * KEYS: tag, last invalidation of any tag; or one of them, where they lie in two slots.
 * ARGV: channel, the tag, how long in ms the version must be remembered at least.
 */
export const INVALIDATE_TAG = redisScript(`
local now = redis.call('TIME')
for _, key in ipairs(KEYS) do
  local version = math.max(now[1] * 1000000 + now[2], math.abs(tonumber(redis.call('GET', key)) or 0) + 1)
  local ttl = math.max(redis.call('PTTL', key), tonumber(ARGV[3]))
  redis.call('SET', key, string.format('%.0f', version), 'PX', string.format('%.0f', ttl))
end
redis.call('PUBLISH', ARGV[1], 't' .. ARGV[2])
return 1
`);
