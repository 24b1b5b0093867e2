import { redisScript } from '../../scripting/redis-script.js';

/**
 * Claims deletions that are due: see SCHEDULE_DELETIONS for how they are kept. What is claimed by a request whose
 * answer was lost is due again when the claim ends.
 *
 * KEYS: 1 deletions. ARGV: 1 how many at most, 2 duration of the claim in ms.
 * Returns {{cache key, ...}, ms until the next is due, or -1 when there is none}.
 */
export const CLAIM_DELETIONS = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, key in ipairs(due) do redis.call('ZADD', KEYS[1], now + math.ceil(ARGV[2]) - 0.5, key) end
local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {due, next and math.max(0, math.ceil(next - now)) or -1}
`);
