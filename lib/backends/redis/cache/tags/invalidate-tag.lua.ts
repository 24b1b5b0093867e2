import { redisScript } from '../../scripting/redis-script.js';

/**
 * Gives a tag a version greater than all earlier ones, so that values stored with another version no longer count, or
 * are stale; and records the same time as the last invalidation of any tag.
 *
 * After a soft expiry a tag is `version;least`: values stored with a version from `least` on are stale.
 *
 * KEYS: tag, last invalidation of any tag; or one of them, where they lie in two slots.
 * ARGV: channel, the tag, how long in ms to keep the version at least, 1 to expire the first key softly (else empty),
 * and how long to keep the version of the first key when it has none yet.
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
