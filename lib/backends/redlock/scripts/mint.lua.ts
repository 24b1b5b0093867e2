import { fencingScript } from '../../redis/fencing/fencing-script.js';
import { callsOf } from './calls-of.lua.js';

/**
 * Reserves the proposed fencing tokens at this node, if the ticket owns all names here.
 *
 * KEYS, for each name: lock, fence, wanted. ARGV: ticket, first token proposed, number of tokens, number of names.
 * Returns {0, number of other tickets that wait} when they are reserved, {-1} when the ticket does not own a name, else
 * {first token not yet issued}.
 */
export const MINT = fencingScript(`
local mint = function(first, last, arg)
  local token, unissued, waiting = tonumber(ARGV[arg + 1]), 0, 0
  for i = first, last, 3 do
    if redis.call('GET', KEYS[i]) ~= ARGV[arg] then return {-1} end
    unissued = math.max(unissued, tonumber(redis.call('GET', KEYS[i + 1]) or '0'))
  end
  if token < unissued then return {unissued} end
  local after = string.format('%.0f', token + ARGV[arg + 2])
  for i = first, last, 3 do
    redis.call('SET', KEYS[i + 1], after, 'PX', fence_ttl)
    redis.call('HDEL', KEYS[i + 2], ARGV[arg])
    waiting = waiting + redis.call('HLEN', KEYS[i + 2])
  end
  return {0, waiting}
end
${callsOf('mint', { keys: 3, args: 3 })}`);
