// The scripts of an owner: to free a lock, or have it freed, to keep it for a rest, and to renew its lease.

import { batchOf, redisScript } from '../connection/redis-script.js';
import { fencingScript, lockAt, QUEUE, READERS_NOW, REST } from './queue.lua.js';

/**
 * Makes the function that takes a ticket out of the readers, and returns whether it was among them, and whether the
 * lock expires sooner without it.
 */
const LEAVE_READERS = `
local readers = function()
  ${READERS_NOW}
  return function(key, owner, ticket)
    if not shared(owner) then return false end
    local token, others, place = readers_in(owner, ticket)
    if not place then return false end
    local left, last = table.remove(others, place), 0
    for _, reader in ipairs(others) do last = math.max(last, reader.ends) end
    store_readers(key, token, others, true)
    return true, last < left.ends
  end
end
`;

/**
 * Frees the lock if it holds the ticket, and hands it to the first waiter. A ticket that reads leaves the readers, and
 * one that waits the queue.
 *
 * KEYS, for each call: lock, fence, queue, waiters.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket.
 * Returns for each call 1 when the lock held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const RELEASE = fencingScript(`
if #KEYS == 4 and redis.pcall('GET', KEYS[1]) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
${releasing()}

${batchOf('release', { keys: 4, args: 1, shared: 1 })}
`);

/** Makes the function that releases the lock whose keys begin at `key`, of the ticket at `arg`; answers as RELEASE. */
export function releasing(): string {
  return `
local hand_over, leave_readers

local queue = function()
  ${QUEUE}
  return function(lock, me, sooner)
    leave(lock, me)
    local owner = redis.call('GET', lock.key)
    if not owner then hand_on(lock, '') end
    if not shared(owner) then return end
    hand_on(lock, '', owner)
    if not sooner then return end
    local ticket = redis.call('LINDEX', lock.queue, 0)
    local _, _, purpose = waiter(lock, ticket or '')
    if purpose then tell('ends', ticket, ' ' .. redis.call('PTTL', lock.key) .. ' ' .. select(2, parts(purpose))) end
  end
end

${LEAVE_READERS}

local release = function(key, arg)
  local owner, answer, read, sooner = redis.pcall('GET', KEYS[key]), -1, nil, nil
  if owner == ARGV[arg] then
    redis.call('DEL', KEYS[key])
    answer = 1
  elseif not owner then
    answer = 0
  else
    leave_readers = leave_readers or readers()
    read, sooner = leave_readers(KEYS[key], owner, ARGV[arg])
    if read then answer = 1 end
  end
  if redis.call('EXISTS', KEYS[key + 2]) == 1 then
    hand_over = hand_over or queue()
    -- pcall: a queue or waiters of a foreign type must not fail the release.
    pcall(hand_over, ${lockAt('key')}, ARGV[arg], sooner)
  end
  return answer
end
`;
}

/**
 * RELEASE without a look at the queue, whose waiters find the lock free with their next heartbeat. See `oneKeySteps`.
 *
 * KEYS: 1 lock. ARGV: 1 ticket. Returns what RELEASE returns.
 */
export const RELEASE_ALONE = redisScript(`
local owner = redis.pcall('GET', KEYS[1])
if not owner then return 0 end
if owner ~= ARGV[1] then
  ${LEAVE_READERS}
  return readers()(KEYS[1], owner, ARGV[1]) and 1 or -1
end
redis.call('DEL', KEYS[1])
return 1
`);

/**
 * Takes the lock from its owner or its readers, tells them, and hands the lock on.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE).
 * Returns the owner, or a list of the readers, or nil when there was none.
 */
export const FORCE_RELEASE = fencingScript(`
local lock = ${lockAt('1')}
local owner = redis.call('GET', lock.key)
if not owner then return false end
${QUEUE}
-- A write that takes no memory: after it, Redis refuses none to the rest.
redis.call('PEXPIRE', lock.key, ${REST})
local readers = {}
if shared(owner) then
  for i, reader in ipairs(select(2, readers_in(owner))) do readers[i] = reader.ticket end
else
  tell('revoked', owner, '')
end
for _, reader in ipairs(readers) do tell('revoked', reader, '') end
-- pcall: a queue or waiters of a foreign type must not keep the lock.
if not pcall(hand_on, lock, '') and redis.call('GET', lock.key) == owner then redis.call('DEL', lock.key) end
return readers[1] and readers or owner
`);

/** How many waiters are sent a message at most, until one is reached. */
const MOST_TOLD = 8;

/**
 * Makes the function that cuts the lease of the lock whose keys begin at `key`, of the ticket `me`, to `rest` ms;
 * answers as KEEP. It needs the text of QUEUE.
 */
export function keeping(): string {
  return `
local announce = function(lock, left)
  for place = 0, ${MOST_TOLD - 1} do
    local ticket = redis.call('LINDEX', lock.queue, place)
    if not ticket then return end
    local alive, _, purpose = waiter(lock, ticket)
    if alive and alive > now then
      local heard = tell('ends', ticket, ' ' .. whole(left) .. ' ' .. select(2, parts(purpose)))
      if heard > 0 or not counted then return end
    end
  end
end
local keep = function(key, me, rest)
  local lock = ${lockAt('key')}
  local owner = redis.pcall('GET', lock.key)
  if owner == me then
    local left = redis.call('PTTL', lock.key)
    if left < 0 or left > rest then
      redis.call('PEXPIRE', lock.key, rest)
      left = rest
    end
    -- pcall: a queue or waiters of a foreign type must not fail the release.
    pcall(announce, lock, left)
    return 1
  end
  return owner and -1 or 0
end
`;
}

/**
 * Cuts the lease of the lock to `rest` ms if it holds the ticket: its holder has ended, and it stays taken for that
 * time (`minHold`). Never lengthens a lease, so a late copy of this request does no harm. Sends a message to the first
 * waiter that can be reached.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 rest in ms.
 * Returns 1 when the lock held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const KEEP = redisScript(`
${QUEUE}
${keeping()}
return keep(1, ARGV[2], tonumber(ARGV[3]))
`);

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
      store_readers(key, token, all, true)
    end
    return mine.ends - now
  end
end
`;

/**
 * Renews several leases, each for at least its ttl from now, if its lock still holds its ticket.
 *
 * KEYS, for each lease: lock, queue. ARGV, for each lease: ticket, ttl in ms.
 * Returns for each lease two numbers: the ms left of it, or -1 when the lock no longer holds the ticket; and how many
 * tickets wait for the name.
 *
 * PEXPIRE rather than SET, so that a lock that is gone stays gone. Never shortens a lease. A lock of a foreign type
 * fails only its own lease, a queue of a foreign type none (pcall).
 */
export const RENEW = redisScript(`
local answers, renew_reader = {}, nil
${RENEW_READER}
for i = 1, #KEYS, 2 do
  local ticket, ttl, waiting = ARGV[i], tonumber(ARGV[i + 1]), 0
  local value, remaining = redis.pcall('GET', KEYS[i]), nil
  if value == ticket then
    remaining = redis.call('PTTL', KEYS[i])
    if remaining < ttl then
      redis.call('PEXPIRE', KEYS[i], ttl)
      remaining = ttl
    end
  else
    renew_reader = renew_reader or readers()
    remaining = renew_reader(KEYS[i], value, ticket, ttl)
  end
  if remaining then
    local length = redis.pcall('LLEN', KEYS[i + 1])
    if type(length) == 'number' then waiting = length end
  end
  answers[i], answers[i + 1] = remaining or -1, waiting
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
