import { redisScript } from '../../scripting/redis-script.js';

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
