// The scripts by which a load stores what it read, and a change keeps it from storing what is stale: the lease of a
// load, the invalidation that cancels it, and the barrier of a write under way.

import { HEADER } from '../../../contracts/cache-store.js';
import { batchOf, redisScript } from '../connection/redis-script.js';
import { TAG_MEMORY } from './redis-cache-tags.js';

/**
 * The Lua functions of a grant. The lease is a string: 1 or 0, whether another load waits for its end, and the token of
 * the load. A call names its own token with such a digit before it: whether it waits if another load has the lease.
 *
 * KEYS[1] is the time of the last invalidation of any tag; in a Cluster, where that lies in another slot, the barrier.
 * The moment of a grant is that time: each later one gets a greater time, also where the clock has stepped back (see
 * INVALIDATE_TAG). In a Cluster it is the time.
 *
 * `written`: whether a write is under way. `granted` returns the moment, also for a repeated request, whose token holds
 * the lease; else what LEASE returns of the load that does.
 */
const GRANT = `
local call = redis.call
local n = (#KEYS - 1) / 3
local clock, at
local function now()
  if not clock then
    local time = call('TIME')
    clock = time[1] * 1000000 + time[2]
  end
  return clock
end
local function moment()
  if at then return at end
  if KEYS[1] == KEYS[n + 2] then at = now()
  else
    local known = call('GET', KEYS[1])
    if not known then call('SET', KEYS[1], string.format('%.0f', now()), 'PX', ${TAG_MEMORY}) end
    at = tonumber(known or now())
  end
  return at
end
local function written(barrier)
  return call('ZRANGEBYSCORE', barrier, string.format('(%.0f', now() / 1000), '+inf', 'LIMIT', 0, 1)[1]
end
local function granted(lease, asked, ms)
  local token, waits = asked, string.byte(asked) == 49
  if waits then token = '0' .. string.sub(asked, 2) end
  if call('SET', lease, token, 'PX', ms, 'NX') then return moment() end
  local held = call('GET', lease)
  if string.sub(held, 2) == string.sub(token, 2) then return moment() end
  if waits then call('SET', lease, '1' .. string.sub(held, 2), 'KEEPTTL') end
  return -2 - math.max(0, call('PTTL', lease))
end
`;

/**
 * Grants the load lease of a key, unless there is a value, a write is under way, or another load holds the lease.
 *
 * KEYS: last invalidation of any tag (in a Cluster the barrier); then, in columns: value, barrier, lease.
 * ARGV, for each call: the token, after 1 to publish the end of another load's lease, else 0; the lease in ms; what to
 * do with an existing value (`refresh` it, or empty); and what a value to refresh begins with (or empty).
 * Returns for each call: the moment of the grant in µs; 0 when there is a value; -1 when a write is under way; or, when
 * another load holds the lease, -2 minus the ms that are left of it.
 */
export const LEASE = redisScript(`${GRANT}
local none = call('EXISTS', unpack(KEYS, 2, 2 * n + 1)) == 0
local function load(i, a)
  local value, barrier = KEYS[1 + i], KEYS[1 + n + i]
  if not none and call('EXISTS', value, barrier) > 0 then
    local refresh, seen = ARGV[a + 2] == 'refresh', ARGV[a + 3]
    local there = call('EXISTS', value) == 1
    if there and (not refresh or seen ~= '' and call('GETRANGE', value, 0, #seen - 1) ~= seen) then return 0 end
    if written(barrier) then return -1 end
  end
  return granted(KEYS[1 + 2 * n + i], ARGV[a], ARGV[a + 1])
end
${batchOf('load', { keys: { columns: 3, shared: 1 }, args: 4, shared: 0 })}`);

/**
 * Returns the value of a key, or grants its load lease as LEASE does. Looks at the values of all calls of a run at
 * once, and at once whether there is anything else.
 *
 * KEYS: as for LEASE.
 * ARGV, for each call: the token, after 1 to publish the end of another load's lease, else 0; and the lease in ms.
 * Returns for each call the value, or what LEASE returns.
 */
export const READ_OR_LEASE = redisScript(
  `${GRANT}
local values = call('MGET', unpack(KEYS, 2, n + 1))
local found = false
for i = 1, n do found = found or values[i] end
local others, from, to = KEYS, 2, 2 * n + 1
if found then
  others, from, to = {}, 1, 0
  for i = 1, n do
    if not values[i] then
      others[to + 1], others[to + 2] = KEYS[1 + i], KEYS[1 + n + i]
      to = to + 2
    end
  end
end
local none = to == 0 or call('EXISTS', unpack(others, from, to)) == 0
local function read(i, a)
  if values[i] then return values[i] end
  if not none then
    local value, barrier = KEYS[1 + i], KEYS[1 + n + i]
    if call('EXISTS', value, barrier) > 0 then
      if call('EXISTS', value) == 1 then return 0 end
      if written(barrier) then return -1 end
    end
  end
  return granted(KEYS[1 + 2 * n + i], ARGV[a], ARGV[a + 1])
end
${batchOf('read', { keys: { columns: 3, shared: 1 }, args: 2, shared: 0 })}`,
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
 * KEYS, in columns: lease, value.
 * ARGV: channel; for each call 0 and the token (a lease for which nobody waits), the time to live in ms, the key's name
 * in messages, and the value.
 * Returns for each call 1 when it stored the value, else 0. A repeated request may return 0 although the first one
 * stored.
 */
export const COMMIT = redisScript(`
local n, ended = #KEYS / 2, {}
local holders = redis.call('MGET', unpack(KEYS, 1, n))
local function commit(i, a)
  local held, unwaited = holders[i], ARGV[a]
  if held ~= unwaited and (not held or string.sub(held, 2) ~= string.sub(unwaited, 2)) then return 0 end
  redis.call('SET', KEYS[n + i], ARGV[a + 3], 'PX', ARGV[a + 1])
  ended[#ended + 1] = KEYS[i]
  if held ~= unwaited then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  return 1
end
${batchOf('commit', { keys: { columns: 2, shared: 0 }, args: 4, shared: 1, end: END_LEASES })}`);

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
  if ARGV[a + 1] ~= '' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZADD', KEYS[k + 2], 'GT', now + ARGV[a + 2], ARGV[a + 1])
    redis.call('ZREMRANGEBYSCORE', KEYS[k + 2], '-inf', string.format('%.0f', now))
    redis.call('PEXPIREAT', KEYS[k + 2], redis.call('ZRANGE', KEYS[k + 2], -1, -1, 'WITHSCORES')[2])
  end
  if ARGV[a + 3] ~= '' then redis.call('ZREM', KEYS[k + 2], ARGV[a + 3]) end
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
