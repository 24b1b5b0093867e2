// The scripts of rate limits: to take of them, to look at them, and to count hits in a window.

import { batchOf, redisScript, type RedisScript } from '../connection/redis-script.js';

/**
 * Takes what a call costs of one or several limits of a key, of all or of none, by the Generic Cell Rate Algorithm: the
 * key holds the time at which all units are back (its "theoretical arrival time", ITU-T I.371), in µs of Redis TIME.
 *
 * KEYS, for each call: one for each limit.
 * ARGV, for each call: for each limit the cost and the capacity in µs.
 * Returns for each call a list of 1 if it took, otherwise 0, and for each limit the µs until all of its units are back;
 * of one limit that it took of, the µs alone, because most calls are of this kind, and a list takes time. So do loops
 * over the limits and functions, which are written out here.
 *
 * A call that is sent twice counts twice. Where the clock has stepped back, the time in the key is more than a capacity
 * ahead: it counts as one capacity from now on, so that the key is free again after that.
 */
export function takeScript(limits: number): RedisScript {
  const each = (text: (i: number) => string, separator = '\n  ') =>
    Array.from({ length: limits }, (_, i) => text(i)).join(separator);
  return redisScript(`
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function take(key, arg)
  ${each(lookAt)}
  if ${each((i) => `after_${i} > capacity_${i}`, ' or ')} then return {0, ${each((i) => `used_${i}`, ', ')}} end
  ${each((i) => keep(`key_${i}`, `after_${i}`))}
  return ${limits === 1 ? 'after_0' : `{1, ${each((i) => `after_${i}`, ', ')}}`}
end

${batchOf('take', { keys: limits, args: 2 * limits, shared: 0 })}
`);
}

/** What the call would leave of the limit `i`. */
function lookAt(i: number): string {
  return `local key_${i}, cost_${i} = KEYS[key + ${i}], ARGV[arg + ${2 * i}]
  local capacity_${i} = ARGV[arg + ${2 * i + 1}] + 0
  local used_${i} = (tonumber(call('GET', key_${i}) or 0) or 0) - now
  if used_${i} < 0 then
    used_${i} = 0
  elseif used_${i} > capacity_${i} then
    used_${i} = capacity_${i}
    ${keep(`key_${i}`, `used_${i}`)}
  end
  local after_${i} = used_${i} + cost_${i}`;
}

/**
 * Redis writes whole numbers out in full: formatting them in Lua would take as long as a command. The key lasts for a
 * second at least: one that comes and goes with each call takes longer.
 */
function keep(key: string, used: string): string {
  return `call('SET', ${key}, now + ${used}, 'PX', ${used} < 999000 and '1000' or math.ceil(${used} / 1000) + 1)`;
}

/**
 * Takes units of one or several limits of a key, as many as there are, of all or of none: see `takeScript`.
 *
 * KEYS, for each call: one for each limit.
 * ARGV, for each call: the least and the most units; then for each limit its interval and its capacity in µs.
 * Returns for each call a list of the units taken, and for each limit the µs until all of its units are back.
 */
export function takeShareScript(limits: number): RedisScript {
  return redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Redis writes whole numbers out in full: formatting them here would take as long as a command.
local function keep(key, used)
  redis.call('SET', key, math.floor(now + used + 0.5), 'PX', math.ceil(used / 1000) + 1)
end

local function take(key, arg)
  local units, answer = tonumber(ARGV[arg + 1]), {0}
  for i = 0, ${limits - 1} do
    local interval, capacity = tonumber(ARGV[arg + 2 + 2 * i]), tonumber(ARGV[arg + 3 + 2 * i])
    local used = math.max(0, (tonumber(redis.call('GET', KEYS[key + i]) or 0) or 0) - now)
    if used > capacity then
      used = capacity
      keep(KEYS[key + i], used)
    end
    units = math.min(units, math.floor((capacity - used) / interval))
    answer[i + 2] = used
  end
  if units < tonumber(ARGV[arg]) then return answer end
  answer[1] = units
  for i = 0, ${limits - 1} do
    answer[i + 2] = answer[i + 2] + units * ARGV[arg + 2 + 2 * i]
    keep(KEYS[key + i], answer[i + 2])
  end
  return answer
end

${batchOf('take', { keys: limits, args: 2 + 2 * limits, shared: 0 })}
`);
}

/**
 * Reads limits without taking of them.
 *
 * KEYS: one for each limit. ARGV: for each, its capacity in µs.
 * Returns for each the µs until all of its units are back.
 */
export const PEEK = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = {}
for i, key in ipairs(KEYS) do
  local used = (tonumber(redis.call('GET', key) or 0) or 0) - now
  answer[i] = math.min(math.max(0, used), tonumber(ARGV[i]))
end
return answer
`);

/**
 * Counts a hit in a fixed window. The key holds the hits of the window, or `b` and the hits that blocked it.
 *
 * KEYS, for each call: the count.
 * ARGV, for each call: the length of the window in ms, the most hits, how long the key is blocked in ms (0: until the
 * window ends).
 * Returns for each call the hits, the ms until the window or the block ends, and whether the key is blocked (1 or 0).
 *
 * A call that is sent twice counts twice. A hit on a key that is blocked beyond its window does not count.
 */
export const HIT = redisScript(`
-- The ms left of the key. One that lost its expiry, as by PERSIST, gets it again: it would count for ever.
local function left_of(key, ms)
  local left = redis.call('PTTL', key)
  if left >= 0 then return left end
  redis.call('PEXPIRE', key, ms)
  return tonumber(ms)
end

local function hit(key, arg)
  key = KEYS[key]
  local window, most, block = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local count = redis.call('GET', key)
  if count and string.sub(count, 1, 1) == 'b' then
    return {tonumber(string.sub(count, 2)), left_of(key, block > 0 and ARGV[arg + 2] or window), 1}
  end
  local hits = redis.call('INCR', key)
  local blocked = hits > most
  if blocked and block > 0 then
    redis.call('SET', key, 'b' .. hits, 'PX', ARGV[arg + 2])
    return {hits, block, 1}
  end
  return {hits, left_of(key, window), blocked and 1 or 0}
end

${batchOf('hit', { keys: 1, args: 3, shared: 0 })}
`);
