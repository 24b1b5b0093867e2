import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';

/** How many keys a latch has: its count, the set of arrivals, and the processes that wait. */
const KEYS = 3;

/**
 * A script over latches: `each` is the text of a Lua function of `l` (see below) and the index of its first argument.
 *
 * The keys of a latch:
 * - count: a hash with `count` and `ttl`. The latch exists while this key does.
 * - arrivals: the set of the ids that arrived, rather than a counter, so that a request sent twice counts once.
 * - waiting: a sorted set of processes, by the time (ms) until which they want a message.
 */
export function latchScript(each: string, args: number): RedisScript {
  return redisScript(`
local each = function(l, arg)
${each}
end
local of_keys = function(key, arg)
  local l = {count_key = KEYS[key], arrivals = KEYS[key + 1], waiting = KEYS[key + 2]}
  local stored = redis.call('HMGET', l.count_key, 'count', 'ttl')
  l.count, l.ttl = tonumber(stored[1] or 0), stored[2]
  l.missing = function() return math.max(0, l.count - redis.call('SCARD', l.arrivals)) end
  return each(l, arg)
end
${batchOf('of_keys', { keys: KEYS, args, shared: 1 })}
`);
}
