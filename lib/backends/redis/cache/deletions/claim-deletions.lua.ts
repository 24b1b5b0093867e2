import { redisScript } from '../../scripting/redis-script.js';

/**
 * Claims deletions that are due (see SCHEDULE_DELETIONS for the data). A claimed deletion that is not forgotten in
 * time, for instance because the answer was lost, becomes due again when the claim ends.
 *
 * KEYS: 1 deletions. ARGV: 1 most deletions to claim, 2 duration of the claim in ms.
 * Returns {{name, ...}, ms until the next deletion is due, or -1 when there is none}.
 */
export const CLAIM_DELETIONS = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, name in ipairs(due) do redis.call('ZADD', KEYS[1], now + math.ceil(ARGV[2]) - 0.5, name) end
local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {due, next and math.max(0, math.ceil(next - now)) or -1}
`);
