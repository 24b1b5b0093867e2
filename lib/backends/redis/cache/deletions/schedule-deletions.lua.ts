import { redisScript } from '../../scripting/redis-script.js';

/**
 * Schedules deletions and publishes the delay.
 *
 * The deletions are a sorted set: the name of a deletion is the member, the time (ms of Redis TIME) when it is due the
 * score. Scheduled deletions have whole scores. A claimed one is due again when its claim ends, and its score ends in
 * .5.
 *
 * KEYS: 1 deletions. ARGV: 1 channel, 2 delay in ms, then the names.
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
