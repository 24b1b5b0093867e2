import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';

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
