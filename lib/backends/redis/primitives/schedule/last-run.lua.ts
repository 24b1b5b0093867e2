import { redisScript } from '../../scripting/redis-script.js';

/**
 * Reads the last run of a scheduled job.
 *
 * KEYS: 1 the record. ARGV: none. Returns an empty list if there is none; otherwise token, label, begin (ms since
 * 1970), end (the same; empty without one), 'yes' or 'no' (empty without an end), and 1 if the run should have ended by
 * now, otherwise 0.
 */
export const LAST_RUN = redisScript(`
local field = function(name) return redis.call('HGET', KEYS[1], name) end
local token = field('token')
if not token then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local overdue = 0
if now >= tonumber(field('due')) then overdue = 1 end
return {token, field('by'), field('started'), field('ended'), field('succeeded'), overdue}
`);
