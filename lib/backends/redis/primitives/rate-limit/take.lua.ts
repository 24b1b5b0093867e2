import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';

/**
 * Takes what a call costs of one or several limits of a key, of all or of none, by the Generic Cell Rate Algorithm: the
 * key holds the time at which all units are back (its "theoretical arrival time", ITU-T I.371), in µs of Redis TIME.
 *
 * KEYS, for each call: one for each limit.
 * ARGV, for each call: for each limit the cost and the capacity in µs.
 * Returns for each call a list of 1 if it took, otherwise 0, and for each limit the µs until all of its units are back;
 * of one limit that it took of, the µs alone, because most calls are of this kind, and a list takes time. So do loops
 * over the limits, which are written out here.
 *
 * A call that is sent twice counts twice. Where the clock has stepped back, the time in the key is more than a capacity
 * ahead: it counts as one capacity from now on, so that the key is free again after that.
 */
export function takeScript(limits: number): RedisScript {
  const each = (text: (key: string, cost: string, capacity: string, after: string) => string, separator = '\n  ') =>
    Array.from({ length: limits }, (_, i) =>
      text(`KEYS[key + ${i}]`, `ARGV[arg + ${2 * i}]`, `ARGV[arg + ${2 * i + 1}]`, `after_${i}`),
    ).join(separator);
  return redisScript(`
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Redis writes whole numbers out in full: formatting them here would take as long as a command. Lets the key last for
-- a second at least: one that comes and goes with each call takes longer.
local function keep(key, used)
  call('SET', key, now + used, 'PX', used < 999000 and '1000' or math.ceil(used / 1000) + 1)
end

local function used_of(key, capacity)
  local used = (tonumber(call('GET', key) or 0) or 0) - now
  if used <= 0 then return 0 end
  if used <= tonumber(capacity) then return used end
  keep(key, tonumber(capacity))
  return tonumber(capacity)
end

local function take(key, arg)
  ${each((key, cost, capacity, after) => `local ${after} = used_of(${key}, ${capacity}) + ${cost}`)}
  if ${each((_, __, capacity, after) => `${after} > tonumber(${capacity})`, ' or ')} then
    return {0, ${each((_, cost, __, after) => `${after} - ${cost}`, ', ')}}
  end
  ${each((key, _, __, after) => `keep(${key}, ${after})`)}
  return ${limits === 1 ? 'after_0' : `{1, ${each((_, __, ___, after) => after, ', ')}}`}
end

${batchOf('take', { keys: limits, args: 2 * limits, shared: 0 })}
`);
}
