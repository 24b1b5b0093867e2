import { batchOf, redisScript } from '../connection/redis-script.js';
import { EXPIRE_SOFTLY } from './values.lua.js';

/**
 * Stores the value of a load, if the load still has the lease, and ends the lease.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the token, the time to live in ms, the key's name in messages, and the value.
 * Returns for each call 1 when it stored the value, else 0. A repeated request may return 0 although the first one
 * stored.
 */
export const COMMIT = redisScript(`
local function commit(k, a)
  local held = redis.call('GET', KEYS[k + 1])
  if not held or string.sub(held, 2) ~= ARGV[a] then return 0 end
  redis.call('SET', KEYS[k], ARGV[a + 3], 'PX', ARGV[a + 1])
  redis.call('DEL', KEYS[k + 1])
  if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  return 1
end
${batchOf('commit', { keys: 2, args: 4, shared: 1 })}`);

/**
 * Grants the load lease of a key, unless there is a value, a write is under way, or another load holds the lease.
 *
 * The lease is a string: 1 or 0, whether another load waits for its end, and the token of the load.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the token, the lease in ms, 1 to refresh an existing value (else empty), what that value
 * begins with (or empty), and 1 to publish the end of another load's lease (else empty).
 * Returns for each call: the time in µs when the lease began; 0 when there is a value; -1 when a write is under way;
 * or, when another load holds the lease, -2 minus the ms that are left of it.
 *
 * A repeated request gets the same answer, because its token holds the lease.
 */
export const LEASE = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function lease(k, a)
  local token, refresh, seen = ARGV[a], ARGV[a + 2] ~= '', ARGV[a + 3]
  if redis.call('EXISTS', KEYS[k], KEYS[k + 2]) > 0 then
    local there = redis.call('EXISTS', KEYS[k]) == 1
    if there and (not refresh or seen ~= '' and redis.call('GETRANGE', KEYS[k], 0, #seen - 1) ~= seen) then return 0 end
    redis.call('ZREMRANGEBYSCORE', KEYS[k + 2], '-inf', string.format('%.0f', now / 1000))
    if redis.call('ZCARD', KEYS[k + 2]) > 0 then return -1 end
  end
  if redis.call('SET', KEYS[k + 1], '0' .. token, 'PX', ARGV[a + 1], 'NX') then return now end
  local held = redis.call('GET', KEYS[k + 1])
  if string.sub(held, 2) == token then return now end
  if ARGV[a + 4] ~= '' then redis.call('SET', KEYS[k + 1], '1' .. string.sub(held, 2), 'KEEPTTL') end
  return -2 - math.max(0, redis.call('PTTL', KEYS[k + 1]))
end
${batchOf('lease', { keys: 3, args: 5, shared: 1 })}`);

/**
 * Ends the lease of a load that stores nothing, if the load still has it.
 *
 * KEYS: lease.
 * ARGV: channel, token, the key's name in messages.
 */
export const RELEASE_LEASE = redisScript(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 2) ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[3]) end
return 1
`);

/**
 * Extends the lease so that it lasts at least its length from now, if the load still has it.
 *
 * KEYS: lease.
 * ARGV: token, lease in ms.
 * Returns 1, or 0 when the load has lost the lease.
 */
export const RENEW_LEASE = redisScript(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 2) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
`);

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

/**
 * Deletes the value or marks it as stale, cancels the load lease, publishes the change, and begins or ends a barrier.
 *
 * A barrier is a sorted set: the token of a write is the member, the time (ms) when the barrier ends by itself the
 * score.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the key's name in messages, the token of a barrier to begin (or empty), its duration in
 * ms, the token of a barrier to end (or empty), and the time since when the value counts as stale (empty: delete the
 * value).
 * Returns for each call 1 when there was a value, else 0.
 */
export const INVALIDATE = redisScript(`${EXPIRE_SOFTLY}
local function invalidate(k, a)
  local found = 1
  if ARGV[a + 4] == '' or not expire_softly(KEYS[k], ARGV[a + 4]) then found = redis.call('UNLINK', KEYS[k]) end
  redis.call('DEL', KEYS[k + 1])
  if ARGV[a + 3] ~= '' then redis.call('ZREM', KEYS[k + 2], ARGV[a + 3]) end
  if ARGV[a + 1] ~= '' then
    local now = redis.call('TIME')
    redis.call('ZADD', KEYS[k + 2], 'GT', now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[a + 2], ARGV[a + 1])
    redis.call('PEXPIREAT', KEYS[k + 2], redis.call('ZRANGE', KEYS[k + 2], -1, -1, 'WITHSCORES')[2])
  end
  redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[a])
  return found
end
${batchOf('invalidate', { keys: 3, args: 5, shared: 1 })}`);

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
