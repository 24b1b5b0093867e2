// The scripts that store, change, take or inspect one value, outside a load.

import { HEADER } from '../../../contracts/cache-store.js';
import { batchOf, redisScript } from '../connection/redis-script.js';

/**
 * Stores a value, cancels the load lease and publishes the change, unless the deadline has passed or a write is under
 * way.
 *
 * KEYS, for each call: value, lease, barrier.
 * ARGV: channel; for each call the key's name in messages, the time to live in ms, 1 to keep an existing value or the
 * digest of the only one to replace (else empty), the deadline in ms by the server's clock (or empty), and the value.
 * Returns for each call 1; 0 when it kept an existing value; 2 when a write is under way; or, after the deadline, the
 * server's time in ms as a negative number.
 */
export const SET = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function set(k, a)
  local before = tonumber(ARGV[a + 3])
  if before and now >= before then return -now end
  if ARGV[a + 2] ~= '' and redis.call('EXISTS', KEYS[k]) == 1 then
    if ARGV[a + 2] == '1' or redis.sha1hex(redis.call('GET', KEYS[k])) ~= ARGV[a + 2] then return 0 end
  end
  if redis.call('ZRANGEBYSCORE', KEYS[k + 2], string.format('(%.0f', now), '+inf', 'LIMIT', 0, 1)[1] then return 2 end
  redis.call('SET', KEYS[k], ARGV[a + 4], 'PX', ARGV[a + 1])
  redis.call('DEL', KEYS[k + 1])
  redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[a])
  return 1
end
${batchOf('set', { keys: 3, args: 5, shared: 1 })}`);

/**
 * Adds to a number and cancels the load lease. Only a new number gets a time to live.
 *
 * Publishes the end of a lease that another load waits for, but no change: first levels never hold numbers.
 *
 * KEYS, for each call: value, lease.
 * ARGV: channel; for each call the number to add, the time to live in ms of a new number (empty: none), and the key's
 * name in messages.
 * Returns for each call the sum.
 */
export const INCREMENT = redisScript(`
local function increment(k, a)
  local begins = redis.call('EXISTS', KEYS[k]) == 0
  local sum = redis.call('INCRBY', KEYS[k], ARGV[a])
  if begins and ARGV[a + 1] ~= '' then redis.call('PEXPIRE', KEYS[k], ARGV[a + 1]) end
  local held = redis.call('GET', KEYS[k + 1])
  if held then
    redis.call('DEL', KEYS[k + 1])
    if string.sub(held, 1, 1) == '1' then redis.call('PUBLISH', ARGV[1], 'e' .. ARGV[a + 2]) end
  end
  return sum
end
${batchOf('increment', { keys: 2, args: 3, shared: 1 })}`);

/**
 * Returns the value and deletes it, cancels the load lease, and publishes the change.
 *
 * KEYS: value, lease.
 * ARGV: channel, the key's name in messages.
 * Returns the value, or nil when there is none. A repeated request gets nil.
 */
export const TAKE = redisScript(`
local value = redis.call('GET', KEYS[1])
redis.call('UNLINK', KEYS[1])
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[2])
return value
`);

/**
 * Sets the time to live of a value, and publishes the change because first levels may hold the value for longer. One
 * that is kept for longer than it is fresh gets the time in its envelope, as `prolonged` of the contract does it.
 *
 * KEYS: value.
 * ARGV: channel, time to live in ms, the key's name in messages, the time now and then (ms of the wall clock, base 36).
 * Returns 1, or 0 when there is no value.
 */
export const EXPIRE = redisScript(`
local head = redis.call('GETRANGE', KEYS[1], 0, ${HEADER.length - 1})
local time, flags = string.match(head, '^..(%w+)'), string.byte(head, 2)
local ttl = ARGV[2]
if time and string.byte(head) == ${HEADER.version} and flags % ${2 * HEADER.keptStale} >= ${HEADER.keptStale}
  and flags % ${2 * HEADER.expired} < ${HEADER.expired} and tonumber(ARGV[5], 36) > tonumber(time, 36) then
  local stale = redis.call('PTTL', KEYS[1]) - (tonumber(time, 36) - tonumber(ARGV[4], 36))
  ttl = string.format('%.0f', ttl + math.max(0, stale))
  local rest = string.sub(redis.call('GET', KEYS[1]), 3 + #time)
  redis.call('SET', KEYS[1], string.sub(head, 1, 2) .. ARGV[5] .. rest, 'PX', ttl)
end
local found = redis.call('PEXPIRE', KEYS[1], ttl)
if found == 1 then redis.call('PUBLISH', ARGV[1], 'i' .. ARGV[3]) end
return found
`);

/**
 * Reads what is stored about a key, and changes nothing.
 *
 * KEYS: value, lease, barrier.
 * ARGV: the most bytes of the value to return.
 * Returns {PTTL of the value, its size in bytes, what it begins with up to its first line feed, PTTL of the lease,
 * how many writes are under way}. A PTTL is -2 where there is no such key, -1 where it has no expiry.
 */
export const INSPECT_VALUE = redisScript(`
local function head_of(key)
  local length = 256
  while true do
    local head = redis.call('GETRANGE', key, 0, length - 1)
    local at = string.find(head, '\\n', 1, true)
    if at then return string.sub(head, 1, at) end
    if #head < length or length >= tonumber(ARGV[1]) then return head end
    length = math.min(length * 4, tonumber(ARGV[1]))
  end
end
local ttl = redis.call('PTTL', KEYS[1])
local there = ttl ~= -2
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return {
  ttl,
  there and redis.call('STRLEN', KEYS[1]) or 0,
  there and head_of(KEYS[1]) or '',
  redis.call('PTTL', KEYS[2]),
  #redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. now, '+inf'),
}
`);
