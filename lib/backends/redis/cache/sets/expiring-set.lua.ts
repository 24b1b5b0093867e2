/**
 * The beginning of each script on an expiring set: a sorted set whose scores are the times (ms of Redis TIME) until
 * which the members live.
 */
export const DROP_EXPIRED = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
`;

/** Expires the key with its last member. */
export const EXPIRE_WITH_LAST = `
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then redis.call('PEXPIREAT', KEYS[1], last) end
`;
