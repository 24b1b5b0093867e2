/** Tokens that come with a grant: enough for one turn of a process. */
const TURN_TOKENS = 128;
/** Tokens that a process gets which asks for more: nobody else wants the lock, or its turn is long. */
export const MORE_TOKENS = 1_024;
/** A waiter that was silent for this time (ms) is dropped. Five heartbeats at their longest period. */
const WAITER_TTL = 5_000;
/** A waiter that was silent for this time (ms) is passed over: it stands still. More than its longest period. */
const SILENCE = 1_500;
/** A waiter that no message reaches asks every 50 ms: it lives if its last request is no older than this (ms). */
const FRESH = 200;
/** How many places from the head of the queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;
/** No key of a queue outlives its waiters by more than this (ms). */
const QUEUE_EXPIRY = 4 * WAITER_TTL;

/**
 * The waiting queue of a lock, as functions for the scripts that need it. A lock is a table with its four keys. A
 * script sets two locals before it includes this text, and is a `fencingScript`: `channels`, what the channel of every
 * process begins with, and `counted`, whether PUBLISH tells how many it reached (in a Cluster it does not).
 *
 * The queue is a list of tickets in order of arrival. The hash of the waiters has for each of them until when (ms of
 * Redis TIME) it stays in the queue unless it is heard of; whether a message reaches it (0: as far as is known; 1: none
 * did, and it was not heard of since; 2: none does, but it was heard of since); and its purpose: `claim:name`, the ms
 * of lease to grant it and the name of the lock. A fence holds the first token not yet issued. Every grant writes the
 * state first and sends the message second: a server out of memory refuses a write, and lets a message pass.
 *
 * The protocol, and why each step is safe, is described in docs/protocol.md.
 */
export const QUEUE = `
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local whole = function(number) return string.format('%.0f', number) end

local unissued = function(lock) return redis.call('GET', lock.fence) or '0' end
-- No more tokens than microseconds have passed since the last were issued: they run ahead of the clock by one range at most.
local mint = function(lock, most, floor)
  local first = math.max(tonumber(unissued(lock)), floor or 0)
  local count = math.max(1, math.min(most or ${TURN_TOKENS}, micros - first))
  first = math.max(first, micros)
  redis.call('SET', lock.fence, whole(first + count), 'PX', fence_ttl)
  return whole(first), count
end

local tell = function(kind, ticket, rest)
  local process = string.match(ticket, '^(.+):%d+$')
  if not process then return 0 end
  -- Who may not publish reaches nobody: what was written before must stand all the same.
  local reached = redis.pcall('PUBLISH', channels .. process, kind .. ' ' .. ticket .. rest)
  return type(reached) == 'number' and reached or 0
end

local waiter = function(lock, ticket)
  local entry = redis.call('HGET', lock.waiters, ticket)
  if not entry then return nil end
  local alive, deaf, purpose = string.match(entry, '^(%d+):(%d+):(.*)$')
  return tonumber(alive), tonumber(deaf), purpose
end
local parts = function(purpose) return string.match(purpose, '^(%d+):(.*)$') end
local write = function(lock, ticket, alive, deaf, purpose)
  redis.call('HSET', lock.waiters, ticket, whole(alive) .. ':' .. deaf .. ':' .. purpose)
  redis.call('PEXPIRE', lock.waiters, ${QUEUE_EXPIRY})
  redis.call('PEXPIRE', lock.queue, ${QUEUE_EXPIRY})
end
-- The waiter was heard of. One that a message did not reach is sent another, which means nothing, to see whether that has changed.
local beat = function(lock, ticket, deaf, purpose)
  if deaf > 0 then deaf = tell('hello', ticket, '') > 0 and 0 or 2 end
  write(lock, ticket, now + ${WAITER_TTL}, deaf, purpose)
  return deaf
end
local join = function(lock, ticket, purpose)
  if redis.call('HEXISTS', lock.waiters, ticket) == 0 then redis.call('RPUSH', lock.queue, ticket) end
  beat(lock, ticket, 0, purpose)
end
local leave = function(lock, ticket)
  redis.call('LREM', lock.queue, 1, ticket)
  redis.call('HDEL', lock.waiters, ticket)
end

-- Gives the free lock to a waiter, and tells its process unless that is the caller. Where no message arrives, it stays free.
local give = function(lock, ticket, purpose, known)
  local claim, name = parts(purpose)
  redis.call('SET', lock.key, ticket, 'PX', claim)
  local token, count = mint(lock)
  if known == 'caller' then return token, count end
  local others = redis.call('LLEN', lock.queue) - 1
  local rest = ' ' .. token .. ' ' .. count .. ' ' .. claim .. ' ' .. others .. ' ' .. name
  if tell('grant', ticket, rest) > 0 or not counted or known == 'alive' then return token, count end
  redis.call('DEL', lock.key)
end

-- Gives the free lock to the first who waits and lives, as far as is known. Who cannot be reached now keeps its place.
local hand_on = function(lock, caller)
  local place, unreached = 0, {}
  while true do
    local ticket = redis.call('LINDEX', lock.queue, place)
    if not ticket then return nil end
    local alive, deaf, purpose = waiter(lock, ticket)
    if not alive or alive <= now then
      leave(lock, ticket)
    else
      local quiet, process = now - (alive - ${WAITER_TTL}), string.match(ticket, '^(.+):%d+$')
      local known = ticket == caller and 'caller' or deaf == 2 and quiet <= ${FRESH} and 'alive'
      local token, count
      if known or quiet <= ${SILENCE} and not unreached[process] then
        token, count = give(lock, ticket, purpose, known)
        if token then
          leave(lock, ticket)
          return ticket, token, count
        end
        unreached[process] = true
      end
      if deaf == 0 and unreached[process] then write(lock, ticket, alive, 1, purpose) end
      place = place + 1
    end
  end
end

local granted = function(lock, token, count)
  return {1, token, count, redis.call('PTTL', lock.key), redis.call('LLEN', lock.queue)}
end
local busy = function(lock, ticket, deaf)
  local place = redis.call('LPOS', lock.queue, ticket, 'MAXLEN', ${NEAR})
  local owner = redis.call('GET', lock.key)
  return {0, unissued(lock), place and place + 1 or 0, redis.call('PTTL', lock.key), owner or '', deaf or 0}
end
`;

/** The table of the lock whose four keys begin at `KEYS[first]`. */
export function lockAt(first: string): string {
  return `{key = KEYS[${first}], fence = KEYS[${first} + 1], queue = KEYS[${first} + 2], waiters = KEYS[${first} + 3]}`;
}
