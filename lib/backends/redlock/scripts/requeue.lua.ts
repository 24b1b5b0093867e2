import { redisScript } from '../../redis/scripting/redis-script.js';
import { WAIT_FOR } from './wait-for.lua.js';

/**
 * Frees a name that holds the ticket, and notes another ticket as waiting for it: the next owner learns with its grant
 * that somebody waits.
 *
 * KEYS: lock, wanted. ARGV: ticket, ticket that waits, time at which it came (µs).
 * Returns 1 when the name held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const REQUEUE = redisScript(`${WAIT_FOR}
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  -- A node that refused the ticket noted it as a waiter, although a majority granted it the name.
  redis.call('HDEL', KEYS[2], ARGV[1])
  return owner and -1 or 0
end
redis.call('DEL', KEYS[1])
local time = redis.call('TIME')
wait_for(KEYS[2], ARGV[2], ARGV[3], time[1] * 1000 + math.floor(time[2] / 1000))
return 1
`);
