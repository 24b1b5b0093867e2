// The scripts of scheduled deletions. `SCHEDULE_DELETIONS` says how they are kept.

import { redisScript } from '../connection/redis-script.js';

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

/**
 * Removes claimed deletions, except those that were scheduled again since (see SCHEDULE_DELETIONS for the data).
 *
 * KEYS: 1 deletions. ARGV: the names.
 */
export const FORGET_DELETIONS = redisScript(`
for _, name in ipairs(ARGV) do
  if (redis.call('ZSCORE', KEYS[1], name) or 0) % 1 ~= 0 then redis.call('ZREM', KEYS[1], name) end
end
return 1
`);
