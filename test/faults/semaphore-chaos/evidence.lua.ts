/**
 * Run on a Redis server of its own for each hold of permits: notes a finding if more permits are trusted at this moment
 * than there are.
 *
 * KEYS: inside, tally, findings. ARGV: 1 the holder, 2 until when (ms of the machine's clock) its process trusts the
 * permits, 3 how many they are, 4 how many there are, 5 the field of the tally that counts this. A process that was
 * paused between its look at the lease and this script comes too late, and is not inside.
 */
export const ENTER = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', KEYS[1], ARGV[1])
if tonumber(ARGV[2]) <= now then return redis.call('HINCRBY', KEYS[2], 'late', 1) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local inside = tonumber(ARGV[3])
for _, holder in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  inside = inside + tonumber(string.match(holder, ':(%d+)$'))
end
if inside > tonumber(ARGV[4]) then
  redis.call('RPUSH', KEYS[3], ARGV[1] .. ' came in as number ' .. inside)
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
return redis.call('HINCRBY', KEYS[2], ARGV[5], 1)
`;
