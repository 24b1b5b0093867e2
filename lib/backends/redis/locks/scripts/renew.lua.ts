import { READERS_NOW } from '../readers/readers.lua.js';
import { redisScript } from '../../scripting/redis-script.js';

/** Makes the function that lets the lease of a reader last for `ttl`; returns the ms left, or nil for no reader. */
const RENEW_READER = `
local readers = function()
  ${READERS_NOW}
  return function(key, value, ticket, ttl)
    if not shared(value) then return nil end
    local token, all, place = readers_in(value, ticket)
    if not place then return nil end
    local mine = all[place]
    if mine.ends < now + ttl then
      mine.ends = now + ttl
      redis.call('DEL', key)
      store_readers(key, token, all)
    end
    return mine.ends - now
  end
end
`;

/**
 * Renews several leases, each for at least its ttl from now, if all its locks still hold its ticket.
 *
 * KEYS: lock and queue of each name, of all leases, one lease after the other.
 * ARGV: for each lease its ticket, its ttl in ms, and its number of names.
 * Returns for each lease two numbers: the ms left of it, or -1 when a lock no longer holds the ticket; and how many
 * tickets wait for its names.
 *
 * PEXPIRE rather than SET, so that a lock that is gone stays gone. Never shortens a lease. A lock of a foreign type
 * fails only its own lease, a queue of a foreign type none (pcall).
 */
export const RENEW = redisScript(`
local answers, first, renew_reader = {}, 1, nil
${RENEW_READER}
for a = 1, #ARGV, 3 do
  local ticket, ttl, last = ARGV[a], tonumber(ARGV[a + 1]), first + 2 * ARGV[a + 2] - 1
  local least, waiting, read = false, 0, {}
  for i = first, last, 2 do
    local value = redis.pcall('GET', KEYS[i])
    if value ~= ticket then
      renew_reader = renew_reader or readers()
      read[i] = renew_reader(KEYS[i], value, ticket, ttl)
      if not read[i] then least = -1 end
    end
  end
  if not least then
    for i = first, last, 2 do
      local remaining = read[i] or redis.call('PTTL', KEYS[i])
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
 * RENEW of one lock, for a Redis Cluster. It names one key, so that no node refuses it while the slot is under
 * migration: see `oneKeySteps`.
 *
 * KEYS: 1 lock. ARGV: 1 ticket, 2 ttl in ms.
 * Returns the ms left of the lease, or -1 when the lock no longer holds the ticket.
 */
export const RENEW_ONE = redisScript(`
local value = redis.pcall('GET', KEYS[1])
if value ~= ARGV[1] then
  ${RENEW_READER}
  return readers()(KEYS[1], value, ARGV[1], tonumber(ARGV[2])) or -1
end
local ttl, remaining = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if remaining >= ttl then return remaining end
redis.call('PEXPIRE', KEYS[1], ttl)
return ttl
`);
