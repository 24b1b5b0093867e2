// The scripts by which a load stores what it read, and a change keeps it from storing what is stale: the lease of a
// load, the invalidation that cancels it, and the barrier of a write under way.

import { HEADER } from '../../../contracts/cache-store.js';
import { batchOf, redisScript } from '../connection/redis-script.js';
import { TAG_MEMORY } from './redis-cache-tags.js';

/**
 * Grants the load lease of a key, unless there is a value, a write is under way, or another load holds the lease. What
 * all calls of a run want to know is asked for once: their values, and whether there is anything else.
 *
 * The lease is a string: 1 or 0, whether another load waits for its end, and the token of the load.
 *
 * The moment of a grant is the time of the last invalidation of any tag: each later one gets a greater time, also where
 * the clock has stepped back (see INVALIDATE_TAG). In a Cluster, where that time lies in another slot, it is the time.
 *
 * KEYS, for each call: value, lease, barrier, last invalidation of any tag (in a Cluster the barrier once more).
 * ARGV: channel; for each call the token, the lease in ms, what to do with an existing value (`read` it, `refresh`
 * it, or empty), what a value to refresh begins with (or empty), and 1 to publish the end of another load's lease (else
 * empty).
 * Returns for each call: the value, if it is to be read; the moment of the grant in µs; 0 when there is a value; -1
 * when a write is under way; or, when another load holds the lease, -2 minus the ms that are left of it.
 *
 * A repeated request gets the same answer, because its token holds the lease.
 */
export const LEASE = redisScript(
  `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local moments = {}
local function moment(barrier, last)
  if last == barrier then return now end
  if not moments[last] then
    local known = redis.call('GET', last)
    if not known then redis.call('SET', last, string.format('%.0f', now), 'PX', ${TAG_MEMORY}) end
    moments[last] = tonumber(known or now)
  end
  return moments[last]
end
local wanted, values, others = {}, {}, {}
local function reads(k) return ARGV[(k - 1) / 4 * 5 + 4] == 'read' end
for k = 1, #KEYS, 4 do if reads(k) then wanted[#wanted + 1] = KEYS[k] end end
if #wanted > 0 then
  for i, value in ipairs(redis.call('MGET', unpack(wanted))) do values[wanted[i]] = value end
end
for k = 1, #KEYS, 4 do
  if not reads(k) or not values[KEYS[k]] then
    others[#others + 1] = KEYS[k]
    others[#others + 1] = KEYS[k + 2]
  end
end
local none = #others == 0 or redis.call('EXISTS', unpack(others)) == 0
local function lease(k, a)
  local token, refresh, seen = ARGV[a], ARGV[a + 2] == 'refresh', ARGV[a + 3]
  local value = reads(k) and values[KEYS[k]]
  if value then return value end
  if not none and redis.call('EXISTS', KEYS[k], KEYS[k + 2]) > 0 then
    local there = redis.call('EXISTS', KEYS[k]) == 1
    if there and (not refresh or seen ~= '' and redis.call('GETRANGE', KEYS[k], 0, #seen - 1) ~= seen) then return 0 end
    redis.call('ZREMRANGEBYSCORE', KEYS[k + 2], '-inf', string.format('%.0f', now / 1000))
    if redis.call('ZCARD', KEYS[k + 2]) > 0 then return -1 end
  end
  if redis.call('SET', KEYS[k + 1], '0' .. token, 'PX', ARGV[a + 1], 'NX') then return moment(KEYS[k + 2], KEYS[k + 3]) end
  local held = redis.call('GET', KEYS[k + 1])
  if string.sub(held, 2) == token then return moment(KEYS[k + 2], KEYS[k + 3]) end
  if ARGV[a + 4] ~= '' then redis.call('SET', KEYS[k + 1], '1' .. string.sub(held, 2), 'KEEPTTL') end
  return -2 - math.max(0, redis.call('PTTL', KEYS[k + 1]))
end
${batchOf('lease', { keys: 4, args: 5, shared: 1 })}`,
  { bytes: true },
);

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
 * Ends the lease of a load that stores nothing, if the load still has it, and deletes the value if that is out of date.
 *
 * KEYS: lease, value.
 * ARGV: channel, token, the key's name in messages, and 1 if the value is out of date (else empty).
 */
export const RELEASE_LEASE = redisScript(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 2) ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[4] ~= '' then
  redis.call('UNLINK', KEYS[2])
  redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[3])
elseif string.sub(held, 1, 1) == '1' then
  redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[3])
end
return 1
`);

const END_LEASES = "if #ended > 0 then redis.call('DEL', unpack(ended)) end";

/**
 * Stores the value of a load, if the load still has the lease, and ends the lease. Looks at the leases of all calls of
 * a run at once, and ends them at once.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the token, the time to live in ms, the key's name in messages, and the value.
 * Returns for each call 1 when it stored the value, else 0. A repeated request may return 0 although the first one
 * stored.
 */
export const COMMIT = redisScript(`
local leases, ended = {}, {}
for k = 2, #KEYS, 2 do leases[k / 2] = KEYS[k] end
local holders = redis.call('MGET', unpack(leases))
local function commit(k, a)
  local held = holders[(k + 1) / 2]
  if not held or string.sub(held, 2) ~= ARGV[a] then return 0 end
  redis.call('SET', KEYS[k], ARGV[a + 3], 'PX', ARGV[a + 1])
  ended[#ended + 1] = KEYS[k + 1]
  if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  return 1
end
${batchOf('commit', { keys: 2, args: 4, shared: 1, end: END_LEASES })}`);

/**
 * The Lua function `expire_softly(key, now)`: marks the value as stale since `now` (ms of the wall clock, base 36), as
 * `expiredSoftly` of the contract does. Returns whether the value has an envelope.
 */
const EXPIRE_SOFTLY = `
local function expire_softly(key, now)
  local head = redis.call('GETRANGE', key, 0, ${HEADER.length - 1})
  local time = string.match(head, '^..(%w+)')
  if not time or string.byte(head) ~= ${HEADER.version} then return false end
  local flags = string.byte(head, 2)
  if flags % ${2 * HEADER.expired} >= ${HEADER.expired} then return true end
  flags = flags + ${HEADER.expired}
  if flags % ${2 * HEADER.keptStale} < ${HEADER.keptStale} then flags = flags + ${HEADER.keptStale} end
  local kept = tonumber(time, 36) < tonumber(now, 36) and time or now
  local rest = string.sub(redis.call('GET', key), 3 + #time)
  redis.call('SET', key, string.char(${HEADER.version}, flags) .. kept .. rest, 'KEEPTTL')
  return true
end
`;

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
