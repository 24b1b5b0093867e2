import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Returns the version of a tag, and gives it one if it has none. The version is the time in µs of the last
 * invalidation; of a tag that was never invalidated, the time when it began, as a negative number.
 *
 * KEYS, for each call: tag.
 * ARGV, for each call: how long in ms to keep the version at least.
 * Returns for each call the version as INVALIDATE_TAG writes it.
 */
export const BEGIN_TAG = redisScript(`
local now = redis.call('TIME')
local function begin(k, a)
  local version = redis.call('GET', KEYS[k])
  if version then
    if redis.call('PTTL', KEYS[k]) < tonumber(ARGV[a]) then redis.call('PEXPIRE', KEYS[k], ARGV[a]) end
    return tonumber(string.match(version, '^[^;]+'))
  end
  version = -(now[1] * 1000000 + now[2])
  redis.call('SET', KEYS[k], string.format('%.0f', version), 'PX', ARGV[a])
  return version
end
${batchOf('begin', { keys: 1, args: 1, shared: 0 })}`);
