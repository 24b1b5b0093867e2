import { batchOf, redisScript } from '../redis/connection/redis-script.js';
import { fencingScript } from '../redis/locks/queue.lua.js';
import { callsOf, WAIT_FOR } from './acquire.lua.js';

/**
 * Reads the state of a name at this node.
 *
 * KEYS: lock, fence, wanted.
 * Returns {owner or an empty string, PTTL, first token not yet issued or an empty string, waiters}.
 */
export const INSPECT = redisScript(`
local owner, waiting = redis.call('GET', KEYS[1]), redis.pcall('HLEN', KEYS[3])
return {
  owner or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', type(waiting) == 'number' and waiting or 0
}
`);

/**
 * Cuts the lease of a name that holds the ticket to `rest` ms; never lengthens one.
 *
 * KEYS: lock. ARGV: ticket, rest in ms.
 * Returns 1 when the name held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const KEEP = redisScript(`
local owner, rest = redis.pcall('GET', KEYS[1]), tonumber(ARGV[2])
if owner ~= ARGV[1] then return owner and -1 or 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or left > rest then redis.call('PEXPIRE', KEYS[1], rest) end
return 1
`);

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

/**
 * Frees a name that holds the ticket. A ticket that waits for it leaves the waiters.
 *
 * KEYS, for each call: lock, wanted. ARGV, for each call: ticket.
 * Returns for each call 1 when the name held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const RELEASE = redisScript(`
-- The usual path; where the owner is still among the waiters, its mark ends within moments.
if #KEYS == 2 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
local release = function(key, arg)
  local owner, me, answer = redis.pcall('GET', KEYS[key]), ARGV[arg], 1
  if owner == me then
    redis.call('DEL', KEYS[key])
  else
    answer = owner and -1 or 0
  end
  redis.pcall('HDEL', KEYS[key + 1], me)
  return answer
end
${batchOf('release', { keys: 2, args: 1, shared: 0 })}`);

/**
 * Renews leases, each for at least its ttl from now, if its name holds its ticket at this node. A name that is gone
 * stays gone.
 *
 * KEYS, for each call: lock, wanted. ARGV, for each call: ticket, ttl in ms.
 * Returns for each call {ms left, number of other tickets that wait}; {-1} when another ticket has the name; {0} when
 * it is free.
 */
export const RENEW = redisScript(`
local renew = function(key, arg)
  local owner, me, ttl = redis.pcall('GET', KEYS[key]), ARGV[arg], tonumber(ARGV[arg + 1])
  if owner ~= me then return {owner and -1 or 0} end
  local left = redis.call('PTTL', KEYS[key])
  if left >= 0 and left < ttl then
    redis.call('PEXPIRE', KEYS[key], ttl)
    left = ttl
  end
  -- A node that refused the ticket, and had the name free later, has the owner among the waiters.
  redis.pcall('HDEL', KEYS[key + 1], me)
  local length = redis.pcall('HLEN', KEYS[key + 1])
  -- A key without an expiry (somebody called PERSIST) is ours until the next renewal.
  return {left < 0 and ttl or left, type(length) == 'number' and length or 0}
end
${batchOf('renew', { keys: 2, args: 2, shared: 0 })}`);

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
