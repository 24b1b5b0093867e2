import { redisScript } from '../../scripting/redis-script.js';

/**
 * Renews several leases: each runs for at least its ttl from now, if all its locks still hold its ticket.
 *
 * KEYS: lock and queue of each name, of all leases, one lease after the other.
 * ARGV: for each lease its ticket, its ttl in ms, and how many names it has.
 * Returns for each lease two numbers: the ms left of it, or -1 when a lock no longer holds the ticket; and how many
 * tickets wait for its names.
 *
 * PEXPIRE rather than SET, so that a lock that is gone stays gone. A lease is never shortened. A lock of a foreign type
 * fails only its own lease, a queue of a foreign type none (pcall).
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
 * RENEW of one lock, for a Redis Cluster. It names one key, which exists on the source or on the target of a slot that
 * is being migrated; a script that also names a missing key, such as that of an empty queue, is refused (TRYAGAIN) until
 * the whole slot has moved.
 *
 * KEYS: 1 lock. ARGV: 1 ticket, 2 ttl in ms.
 * Returns the ms left of the lease, or -1 when the lock no longer holds the ticket.
 */
export const RENEW_ONE = redisScript(`
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local ttl, remaining = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if remaining >= ttl then return remaining end
redis.call('PEXPIRE', KEYS[1], ttl)
return ttl
`);
