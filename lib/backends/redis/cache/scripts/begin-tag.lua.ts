import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * The version of a tag: the time in µs when it was last invalidated, or began, which is negative. One that has none
 * begins now.
 *
 * KEYS, for each call: tag.
 * ARGV, for each call: how long in ms the version must be remembered.
 * Returns for each call the version: see INVALIDATE_TAG for what else is in it.
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
