import { redisScript } from '../../scripting/redis-script.js';

/**
 * Renews claims of deletions that were not scheduled anew since: see SCHEDULE_DELETIONS for how they are kept.
 *
 * KEYS: 1 deletions. ARGV: 1 duration of the claim in ms, then the names.
 */
export const RENEW_DELETIONS = redisScript(`
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + math.ceil(ARGV[1]) - 0.5
for i = 2, #ARGV do
  if (redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0) % 1 ~= 0 then redis.call('ZADD', KEYS[1], ends, ARGV[i]) end
end
return 1
`);
