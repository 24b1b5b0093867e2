import { redisScript } from './redis-script.js';

/**
 * Takes all locks or none, and mints one fencing token for them.
 *
 * KEYS: for each name its lock and its fence, alternating.
 * ARGV: 1 ticket, 2 lease in ms, 3 expiry of the fences in ms.
 * Returns {1, token}, or {0, index of the first name found taken, its owner, its PTTL}.
 *
 * A fence holds the first token not yet issued. The token is the largest of the fences and Redis TIME in µs, so that it
 * rises also after a fence expired or was lost. A lock that holds our own ticket was granted to an earlier send of this
 * very request: it is granted again.
 */
export const ACQUIRE = redisScript(`
for i = 1, #KEYS, 2 do
  local owner = redis.call('GET', KEYS[i])
  if owner and owner ~= ARGV[1] then
    return {0, (i + 1) / 2, owner, redis.call('PTTL', KEYS[i])}
  end
end
local time = redis.call('TIME')
local token = time[1] * 1000000 + time[2]
for i = 2, #KEYS, 2 do
  local unissued = redis.call('GET', KEYS[i])
  if unissued then token = math.max(token, tonumber(unissued)) end
end
local unissued = string.format('%.0f', token + 1)
for i = 1, #KEYS, 2 do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[i + 1], unissued, 'PX', ARGV[3])
end
return {1, token}
`);
