/** Tokens that come with a grant: enough for one turn of a process. */
const TURN_TOKENS = 128;
/** Tokens for a process that asks for more: no other process wants the lock, or its turn is long. */
export const MORE_TOKENS = 1_024;
/** A waiter without a heartbeat for this time (ms) is dropped. Five times the longest period of heartbeats. */
const WAITER_TTL = 5_000;
/** A waiter without a heartbeat for this time (ms) is passed over. Longer than the longest period of heartbeats. */
const SILENCE = 1_500;
/** A waiter that no message reaches asks every 50 ms: it lives if its last request is no older than this (ms). */
const FRESH = 200;
/** How many places from the head of the queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;
/** The keys of a queue expire this long (ms) after the last heartbeat of a waiter. */
const QUEUE_EXPIRY = 4 * WAITER_TTL;

/**
 * The waiting queue of a lock, as Lua functions. A script that includes this text is a `fencingScript`, and its first
 * argument tells how to publish: `1` or `0`, whether PUBLISH answers how many processes it reached (in a Cluster it
 * counts those of one node only), followed by what the channel of every process begins with. See `publishArgument`.
 *
 * A lock is a table with its four keys. The queue is a list of tickets in order of arrival. The hash of the waiters has
 * for each of them
 * - until when (ms of Redis TIME) it stays in the queue without a further heartbeat;
 * - whether a message reaches it (0: none is known to have missed it; 1: one missed it, and it sent no heartbeat since;
 *   2: messages miss it, but its heartbeats arrive);
 * - its purpose, `claim:name`: the ms of lease to grant it and the name of the lock.
 *
 * A fence holds the first token not yet issued. Every grant writes the state first and sends the message second, because
 * a server out of memory refuses the write but not the message.
 *
 * docs/protocol.md describes the protocol, and why each step is safe.
 */
export const QUEUE = `
local counted, channels = string.sub(ARGV[1], 1, 1) == '1', string.sub(ARGV[1], 2)
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local whole = function(number) return string.format('%.0f', number) end

local unissued = function(lock) return redis.call('GET', lock.fence) or '0' end
-- At most one token for each microsecond since the last were issued: tokens run ahead of the clock by one range at most.
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
  -- Without the right to publish no message is sent, but what was written before must stand (pcall).
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
-- Notes a heartbeat. A waiter that a message missed is sent an empty one, to see whether messages reach it again.
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

-- Gives the free lock to a waiter, and sends its process a message unless that is the caller. Where the message reaches
-- nobody, the lock stays free.
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

-- Gives the free lock to the first waiter that is taken to live. One that cannot be reached now keeps its place.
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
