import { redisScript } from '../../scripting/redis-script.js';

/**
 * Records that a run of a scheduled job began, or that it ended. A run with a smaller token than the recorded one
 * changes nothing; of several ends of one run, the first counts.
 *
 * KEYS: 1 the record (a hash). ARGV: 1 fencing token, 2 label of the process, 3 ms since the run began, 4 how long it
 * may last in ms, 5 outcome: empty for a begin, 'yes' or 'no' for an end, 6 ttl of the record in ms. Returns 1 when the
 * run is the last one, otherwise 0.
 */
export const RECORD_RUN = redisScript(`
local known = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local token = tonumber(ARGV[1])
if known > token then return 0 end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local whole = function(number) return string.format('%.0f', number) end
if known < token then
  local started = now - tonumber(ARGV[3])
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'by', ARGV[2], 'started', whole(started),
    'due', whole(started + tonumber(ARGV[4])), 'ended', '', 'succeeded', '')
end
if ARGV[5] ~= '' and redis.call('HGET', KEYS[1], 'succeeded') == '' then
  redis.call('HSET', KEYS[1], 'ended', whole(now), 'succeeded', ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1
`);
