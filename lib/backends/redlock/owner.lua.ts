import { redisScript } from '../redis/connection/redis-script.js';
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
 * Cuts the lease of those of the names that hold the ticket to `rest` ms; never lengthens one.
 *
 * KEYS: lock of each name. ARGV: ticket, rest in ms, number of names.
 * Returns 1 when all names held the ticket, 0 when one was free, -1 when one holds another ticket.
 */
export const KEEP = redisScript(`
local keep = function(first, last, arg)
  local me, rest, answer = ARGV[arg], tonumber(ARGV[arg + 1]), 1
  for i = first, last do
    local owner = redis.pcall('GET', KEYS[i])
    if owner == me then
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 or left > rest then redis.call('PEXPIRE', KEYS[i], rest) end
    elseif owner then
      answer = -1
    elseif answer == 1 then
      answer = 0
    end
  end
  return answer
end
${callsOf('keep', { keys: 1, args: 2 })}`);

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
 * Frees those of the names that hold the ticket. A ticket that waits for a name leaves the waiters.
 *
 * KEYS, for each name: lock, wanted. ARGV, for each call: ticket, number of names.
 * Returns for each call 1 when all names held the ticket, 0 when one was free, -1 when one holds another ticket.
 */
export const RELEASE = redisScript(`
-- The usual path; where the owner is still among the waiters, its mark ends within moments.
if #KEYS == 2 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
local release = function(first, last, arg)
  local me, answer = ARGV[arg], 1
  for i = first, last, 2 do
    -- pcall: a key of a foreign type must not fail the release of the other names.
    local owner = redis.pcall('GET', KEYS[i])
    if owner == me then
      redis.call('DEL', KEYS[i])
    elseif owner then
      answer = -1
    elseif answer == 1 then
      answer = 0
    end
    redis.pcall('HDEL', KEYS[i + 1], me)
  end
  return answer
end
${callsOf('release', { keys: 2, args: 1 })}`);

/**
 * Renews leases, each for at least its ttl from now, if all its names hold its ticket at this node. A name that is gone
 * stays gone.
 *
 * KEYS, for each name: lock, wanted. ARGV, for each call: ticket, ttl in ms, number of names.
 * Returns for each call {ms left, number of other tickets that wait}; {-1} when another ticket has one of the names;
 * {0} when one is free and none has another ticket.
 */
export const RENEW = redisScript(`
local renew = function(first, last, arg)
  local me, ttl, free = ARGV[arg], tonumber(ARGV[arg + 1]), false
  for i = first, last, 2 do
    local owner = redis.pcall('GET', KEYS[i])
    if owner and owner ~= me then return {-1} end
    free = free or not owner
  end
  if free then return {0} end
  local least, waiting = math.huge, 0
  for i = first, last, 2 do
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < ttl then
      redis.call('PEXPIRE', KEYS[i], ttl)
      left = ttl
    end
    -- A key without an expiry (somebody called PERSIST) is ours until the next renewal.
    least = math.min(least, left < 0 and ttl or left)
    -- A node that refused the ticket, and had the name free later, has the owner among the waiters.
    redis.pcall('HDEL', KEYS[i + 1], me)
    local length = redis.pcall('HLEN', KEYS[i + 1])
    if type(length) == 'number' then waiting = waiting + length end
  end
  return {least, waiting}
end
${callsOf('renew', { keys: 2, args: 2 })}`);

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
