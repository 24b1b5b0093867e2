import { redisScript } from '../../scripting/redis-script.js';

/**
 * Gives a tag a new version, greater than all that it had, so that what was stored with another one no longer counts,
 * or is stale; and notes when any tag was invalidated last, in the same way.
 *
 * A tag that was expired softly is `version;least`: what was stored with a version from `least` on is stale.
 *
 * KEYS: tag, last invalidation of any tag; or one of them, where they lie in two slots.
 * ARGV: channel, the tag, how long in ms the version must be remembered at least, 1 where the first key is to be
 * expired softly (else empty), and how long the version of the first key must be remembered where it has none yet.
 */
export const INVALIDATE_TAG = redisScript(`
local now = redis.call('TIME')
for i, key in ipairs(KEYS) do
  local last = redis.call('GET', key)
  local known = last and math.abs(tonumber(string.match(last, '^[^;]+'))) or 0
  local version = string.format('%.0f', math.max(now[1] * 1000000 + now[2], known + 1))
  local ttl = math.max(redis.call('PTTL', key), tonumber(i == 1 and not last and ARGV[5] or ARGV[3]))
  if i == 1 and ARGV[4] ~= '' and last then
    version = version .. ';' .. (string.match(last, ';(.+)') or string.format('%.0f', known))
  end
  redis.call('SET', key, version, 'PX', string.format('%.0f', ttl))
end
redis.call('PUBLISH', ARGV[1], 't' .. ARGV[2])
return 1
`);
