import { redisScript } from '../../scripting/redis-script.js';

/**
 * Schedules deletions and publishes that.
 *
 * The deletions are a sorted set of cache keys, by the time (ms of Redis TIME) when each is due. One that is claimed is
 * due again when the claim ends, at half a millisecond: that tells it from a scheduled one, whose time is whole.
 *
 * KEYS: 1 deletions. ARGV: 1 channel, 2 delay in ms, then the cache keys.
 */
export const SCHEDULE_DELETIONS = redisScript(`
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + math.ceil(ARGV[2])
for i = 3, #ARGV do
  local known = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0)
  if known % 1 ~= 0 or known < due then redis.call('ZADD', KEYS[1], due, ARGV[i]) end
end
redis.call('PUBLISH', ARGV[1], 'd' .. ARGV[2])
return 1
`);
