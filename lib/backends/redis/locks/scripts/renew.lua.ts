import { redisScript } from '../../scripting/redis-script.js';

/**
 * Lets each of several leases run for at least its ttl from now, if all its locks still hold its ticket.
 *
 * KEYS: lock and queue of each name, of all leases, one lease after the other.
 * ARGV: for each lease its ticket, its ttl in ms, and how many names it has.
 * Returns for each lease the ms left of it, or -1 when it is not ours any more; and how many wait for its names.
 *
 * PEXPIRE and never SET, so that nothing is brought back; never shorter than it is; and a key of a foreign type spoils
 * its own lease only, and that of a queue none (pcall).
 */
export const RENEW = redisScript(`
local answers, first = {}, 1
for a = 1, #ARGV, 3 do
  local ticket, ttl, last = ARGV[a], tonumber(ARGV[a + 1]), first + 2 * ARGV[a + 2] - 1
  local least, waiting = false, 0
  for i = first, last, 2 do
    if redis.pcall('GET', KEYS[i]) ~= ticket then least = -1 end
  end
  if not least then
    for i = first, last, 2 do
      local remaining = redis.call('PTTL', KEYS[i])
      if remaining < ttl then
        redis.call('PEXPIRE', KEYS[i], ttl)
        remaining = ttl
      end
      least = math.min(least or remaining, remaining)
      local length = redis.pcall('LLEN', KEYS[i + 1])
      if type(length) == 'number' then waiting = waiting + length end
    end
  end
  answers[#answers + 1] = least
  answers[#answers + 1] = waiting
  first = last + 1
end
return answers
`);

/**
 * RENEW of one lock, for a Redis Cluster: it names only the key that exists. While a slot is moved to another node, a
 * script that also names a key that does not exist, as that of a queue mostly is, is refused until the whole slot has
 * moved.
 *
 * KEYS: 1 lock. ARGV: 1 ticket, 2 ttl in ms.
 * Returns the ms left of the lease, or -1 when it is not ours any more.
 */
export const RENEW_ONE = redisScript(`
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local ttl, remaining = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if remaining >= ttl then return remaining end
redis.call('PEXPIRE', KEYS[1], ttl)
return ttl
`);
