import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';

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
