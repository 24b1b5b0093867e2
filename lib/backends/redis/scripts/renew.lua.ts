import { redisScript } from './redis-script.js';

/**
 * Lets each of several leases run for at least its ttl from now, if all its locks still hold its ticket.
 *
 * KEYS: lock and queue of each name, of all leases, one lease after the other.
 * ARGV: for each lease its ticket, its ttl in ms, and how many names it has.
 * Returns for each lease the ms left of it, or -1 when it is not ours any more; and how many wait for its names.
 *
 * PEXPIRE and never SET, so that nothing is brought back; never shorter than it is; and a key of a foreign type spoils
 * its own lease only (pcall).
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
      waiting = waiting + redis.call('LLEN', KEYS[i + 1])
    end
  end
  answers[#answers + 1] = least
  answers[#answers + 1] = waiting
  first = last + 1
end
return answers
`);
