// What the scripts of locks share: how long a counter of fencing tokens is kept, and the Lua functions of readers, of
// tokens and of the queue. The scripts that only issue tokens follow at the end. acquire.lua.ts, readers.lua.ts and
// release.lua.ts have the others.

import { lockOption } from '../../../options/option-checks.js';
import { redisScript, type RedisScript, scriptOf } from '../connection/redis-script.js';

/**
 * How long (ms) the counter of the fencing tokens of a name is kept after the last grant. Tokens start from the time of
 * Redis, so they rise even when the counter is gone. The counter bridges two gaps only: tokens may run ahead of the
 * clock (by a millisecond), and a name may move to a server whose clock is behind. Ten minutes is twice the clock skew
 * that Kerberos tolerates.
 */
export const FENCE_TTL = 10 * 60 * 1_000;

/** @throws LockConfigError */
export function fenceTtlOf(fenceTtl: unknown): number {
  return lockOption.timerMilliseconds('fenceTtl', fenceTtl, 1_000);
}

/** A script that issues fencing tokens. */
export function fencingScript(body: string): RedisScript {
  return redisScript(withTtl(FENCE_TTL) + body);
}

/** The same script with another expiry of the counter. */
export function withFenceTtl({ lua, bytes }: RedisScript, fenceTtl: number): RedisScript {
  return scriptOf(lua.replace(withTtl(FENCE_TTL), withTtl(fenceTtl)), bytes);
}

function withTtl(fenceTtl: number): string {
  return `local fence_ttl = '${fenceTtl}'\n`;
}

/** How the value of a lock that readers hold begins. No process has this name, so that nobody takes it for a ticket. */
export const READERS_VALUE = 'readers ';

/**
 * The readers of a lock, as Lua functions; they need `now`, the ms of Redis TIME. All of them are in the value of the
 * lock, so that no other key can be lost, evicted or deleted without them:
 *
 *   readers <token> <ticket>=<until> <ticket>=<until> ...
 *
 * The token is that of a reader which joins now. `until` is when (ms of Redis TIME) the lease of that reader ends. The
 * lock expires with the last of them. Clients that know no readers see a lock that somebody else owns.
 *
 * `store_readers` frees a lock that nobody reads any more. It deletes nothing that it then writes: in a Cluster, the
 * source of a slot on its way refuses a key that is missing, and the other readers would lose their lock. A server out
 * of memory refuses a SET as the first write of a script, so PEXPIRE comes first where a reader renews or leaves
 * (`must`).
 */
const READERS = `
local shared = function(value)
  return type(value) == 'string' and string.find(value, '^${READERS_VALUE}%d+') ~= nil
end
-- Returns the token, the readers whose lease has not ended, and the place of the ticket among them.
local readers_in = function(value, ticket)
  local readers, place = {}, nil
  for each, ends in string.gmatch(value, ' (%S+)=(%d+)') do
    if tonumber(ends) > now then
      readers[#readers + 1] = {ticket = each, ends = tonumber(ends)}
      if each == ticket then place = #readers end
    end
  end
  return string.match(value, '^${READERS_VALUE}(%d+)'), readers, place
end
local store_readers = function(key, token, readers, must)
  local last, value = 0, {'${READERS_VALUE}' .. token}
  for i, reader in ipairs(readers) do
    last = math.max(last, reader.ends)
    value[i + 1] = string.format('%s=%.0f', reader.ticket, reader.ends)
  end
  if last <= now then return redis.call('DEL', key) end
  local left = string.format('%.0f', last - now)
  if must then redis.call('PEXPIRE', key, left) end
  redis.call('SET', key, table.concat(value, ' '), 'PX', left)
end
`;

/** The same for a script that has no other use for the time. */
export const READERS_NOW = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
${READERS}
`;

/** How many tokens come with a grant: enough for one turn of a process. */
const TURN_TOKENS = 128;
/** How many tokens a process gets that asks for more: no other process wants the lock, or its turn is long. */
export const MORE_TOKENS = 1_024;
/** A waiter without a heartbeat for this time (ms) is dropped: five times the longest period of heartbeats. */
const WAITER_TTL = 5_000;
/** A waiter without a heartbeat for this time (ms) is passed over: longer than the longest period of heartbeats. */
const SILENCE = 1_500;
/**
 * A waiter that no message reaches asks every 50 ms: it counts as alive if its last request is no older than this (ms).
 */
const FRESH = 200;
/** How many places at the head of the queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;
/**
 * The keys of a queue expire this long (ms) after the last heartbeat of a waiter, and its pause, which is shorter: the
 * heartbeat of another one may follow.
 */
const QUEUE_EXPIRY = 4 * WAITER_TTL;

/** The lease (ms) of an owner whose lock is about to be handed on, should the script fail before. */
export const REST = 1_000;

/** Mints fencing tokens of a lock, as Lua functions, in a `fencingScript`. A lock is a table with its keys. */
const TOKENS = `
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local whole = function(number) return string.format('%.0f', number) end

local unissued = function(lock) return redis.call('GET', lock.fence) or '0' end
-- Mints at most one token for each microsecond since the last ones: tokens run ahead of the clock by one range at most.
local mint = function(lock, most, floor)
  local first = math.max(tonumber(unissued(lock)), floor or 0)
  local count = math.max(1, math.min(most or ${TURN_TOKENS}, micros - first))
  first = math.max(first, micros)
  redis.call('SET', lock.fence, whole(first + count), 'PX', fence_ttl)
  return whole(first), count
end
`;

/**
 * The queue of a lock, as Lua functions. A script that includes this text is a `fencingScript`, and its first argument
 * says how to publish: `1` or `0`, whether PUBLISH returns how many processes it reached (in a Cluster it counts those
 * of one node only), then the text with which the channel of every process begins. See `publishArgument`.
 *
 * A lock is a table with its four keys. The queue is a list of tickets in order of arrival, where readers come before
 * the writers that are not next. The hash of the waiters has for each of them
 * - until when (ms of Redis TIME) it stays in the queue without a further heartbeat;
 * - whether messages reach it (0: none is known to have missed it; 1: one missed it, and it sent no heartbeat since; 2:
 *   messages miss it, but its heartbeats arrive);
 * - its purpose, `claim:name`: the lease in ms for its grant, and the name of the lock.
 *
 * The entry of one that asks to read begins with a 0, which is no part of its time.
 *
 * A fence holds the first token not yet issued. Every grant writes the state first and sends the message second,
 * because a server that is out of memory refuses the write but not the message.
 *
 * docs/protocol.md describes the protocol, and why each step is safe.
 */
export const QUEUE = `
local counted, channels = string.sub(ARGV[1], 1, 1) == '1', string.sub(ARGV[1], 2)
${TOKENS}
local now = math.floor(micros / 1000)
${READERS}
local tell = function(kind, ticket, rest)
  local process = string.match(ticket, '^(.+):%d+$')
  if not process then return 0 end
  -- pcall: without the right to publish no message is sent, but what was written before must stand.
  local reached = redis.pcall('PUBLISH', channels .. process, kind .. ' ' .. ticket .. rest)
  return type(reached) == 'number' and reached or 0
end

local waiter = function(lock, ticket)
  local entry = redis.call('HGET', lock.waiters, ticket)
  if not entry then return nil end
  local mark, alive, deaf, purpose = string.match(entry, '^(0?)(%d+):(%d+):(.*)$')
  return tonumber(alive), tonumber(deaf), purpose, mark == '0'
end
local parts = function(purpose) return string.match(purpose, '^(%d+):(.*)$') end
local write = function(lock, ticket, alive, deaf, purpose, reads)
  redis.call('HSET', lock.waiters, ticket, (reads and '0' or '') .. whole(alive) .. ':' .. deaf .. ':' .. purpose)
  local expiry = whole(math.max(${QUEUE_EXPIRY}, alive - now + ${QUEUE_EXPIRY - WAITER_TTL}))
  redis.call('PEXPIRE', lock.waiters, expiry)
  redis.call('PEXPIRE', lock.queue, expiry)
end
-- Notes a heartbeat. Sends an empty message to a waiter that a message missed, to see whether messages reach it again.
-- One that they reach may pause, and counts as alive for that time more.
local beat = function(lock, ticket, deaf, purpose, reads, pause)
  if deaf > 0 then deaf = tell('hello', ticket, '') > 0 and 0 or 2 end
  write(lock, ticket, now + ${WAITER_TTL} + (deaf == 0 and pause or 0), deaf, purpose, reads)
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

-- Tells the owner of the lock that somebody else waits; of many writers that wait for readers only those near the head.
local want = function(lock, owner, ticket, name)
  if not shared(owner) then return tell('wanted', owner, ' ' .. name) end
  if not redis.call('LPOS', lock.queue, ticket, 'MAXLEN', ${NEAR}) then return end
  local _, readers = readers_in(owner)
  for _, reader in ipairs(readers) do tell('wanted', reader.ticket, ' ' .. name) end
end
-- Whether the ticket is that of a writer that sends heartbeats.
local writes = function(lock, ticket)
  local alive, _, _, reads = waiter(lock, ticket)
  return alive and not reads and now - (alive - ${WAITER_TTL}) <= ${SILENCE}
end
-- Queues a reader behind the readers that come after the first live writers of the queue: one where readers hold the
-- lock.
local join_reader = function(lock, ticket, purpose, writers)
  local place = 0
  while redis.call('HEXISTS', lock.waiters, ticket) == 0 do
    local other = redis.call('LINDEX', lock.queue, place)
    if not other then
      redis.call('RPUSH', lock.queue, ticket)
      break
    end
    if writes(lock, other) then
      if writers == 0 then
        redis.call('LINSERT', lock.queue, 'BEFORE', other, ticket)
        break
      end
      writers = writers - 1
    end
    place = place + 1
  end
  beat(lock, ticket, 0, purpose, true)
end
-- Whether a writer waits that sends heartbeats: readers that come now wait behind it.
local writer_waits = function(lock)
  local place = 0
  while true do
    local ticket = redis.call('LINDEX', lock.queue, place)
    if not ticket then return false end
    if writes(lock, ticket) then return true end
    place = place + 1
  end
end

-- Gives the lock to a waiter, and sends its process a message unless that process is the caller. If the message reaches
-- nobody, nothing is returned, and the lock is as good as free.
local give = function(lock, ticket, purpose, known)
  local claim, name = parts(purpose)
  redis.call('SET', lock.key, ticket, 'PX', claim)
  local token, count = mint(lock)
  if known == 'caller' then return token, count end
  local others = redis.call('LLEN', lock.queue) - 1
  local rest = ' ' .. token .. ' ' .. count .. ' ' .. claim .. ' ' .. others .. ' ' .. name
  if tell('grant', ticket, rest) > 0 or not counted or known == 'alive' then return token, count end
end

-- Lets waiting readers in together, beside those of \`value\`. One that the message does not reach keeps its place.
-- Returns the ticket of one of them, the caller if it is among them.
local admit = function(lock, run, caller, value, unreached)
  local token, readers, admitted, missed = mint(lock, 1), {}, nil, {}
  if value then readers = select(2, readers_in(value)) end
  for _, reader in ipairs(run) do
    readers[#readers + 1] = {ticket = reader.ticket, ends = now + parts(reader.purpose)}
  end
  store_readers(lock.key, token, readers)
  local others = redis.call('LLEN', lock.queue) - #run
  for _, reader in ipairs(run) do
    local claim, name = parts(reader.purpose)
    local rest = ' ' .. token .. ' 1 ' .. claim .. ' ' .. others .. ' ' .. name
    local known = reader.known
    if known == 'caller' or tell('grant', reader.ticket, rest) > 0 or not counted or known == 'alive' then
      leave(lock, reader.ticket)
      if reader.ticket == caller or not admitted then admitted = reader.ticket end
    else
      missed[reader.ticket], unreached[reader.process] = true, true
      if reader.deaf == 0 then write(lock, reader.ticket, reader.alive, 1, reader.purpose, true) end
    end
  end
  if next(missed) then
    local reached = {}
    for _, reader in ipairs(readers) do if not missed[reader.ticket] then reached[#reached + 1] = reader end end
    if value or reached[1] then store_readers(lock.key, token, reached, true) end
  end
  return admitted, token, 1
end

-- Gives a lock whose owner has left to the first waiter that counts as alive: to one writer, or to all readers before
-- the next writer. If nobody gets it, it is free. Only then is it deleted, for the reason that READERS gives. With
-- \`value\`, readers hold the lock, and only readers come in. A waiter that cannot be reached now keeps its place.
local hand_on = function(lock, caller, value)
  local place, unreached, run = 0, {}, {}
  while true do
    local ticket = redis.call('LINDEX', lock.queue, place)
    local alive, deaf, purpose, reads
    if ticket then alive, deaf, purpose, reads = waiter(lock, ticket) end
    if not ticket then
      local admitted, first
      if run[1] then admitted, first = admit(lock, run, caller, value, unreached) end
      if admitted then return admitted, first, 1 end
      if not value then redis.call('DEL', lock.key) end
      return nil
    elseif not alive or alive <= now then
      leave(lock, ticket)
    else
      local quiet, process = now - (alive - ${WAITER_TTL}), string.match(ticket, '^(.+):%d+$')
      local known = ticket == caller and 'caller' or deaf == 2 and quiet <= ${FRESH} and 'alive'
      local token, count
      if known or quiet <= ${SILENCE} and not unreached[process] then
        if reads then
          run[#run + 1] = {
            ticket = ticket, known = known, process = process, alive = alive, deaf = deaf, purpose = purpose,
          }
        else
          if run[1] then
            local admitted, first = admit(lock, run, caller, value, unreached)
            if admitted then return admitted, first, 1 end
            run = {}
          end
          if value then return nil end
          token, count = give(lock, ticket, purpose, known)
          if token then
            leave(lock, ticket)
            return ticket, token, count
          end
          unreached[process] = true
        end
      end
      if deaf == 0 and unreached[process] then write(lock, ticket, alive, 1, purpose, reads) end
      place = place + 1
    end
  end
end

-- pcall: the last waiter may have left the queue, which a Cluster that moves the slot then refuses to look at.
local granted = function(lock, token, count)
  local waiting = redis.pcall('LLEN', lock.queue)
  return {1, token, count, redis.call('PTTL', lock.key), type(waiting) == 'number' and waiting or 0}
end
-- What a reader among the readers is answered.
local share_of = function(lock, value, ticket)
  if not shared(value) then return nil end
  local token, readers, place = readers_in(value, ticket)
  if not place then return nil end
  return {1, token, 1, whole(readers[place].ends - now), redis.call('LLEN', lock.queue)}
end
local name_of = function(owner) return shared(owner) and 'readers' or owner or '' end
local busy = function(lock, ticket, deaf)
  local place = redis.call('LPOS', lock.queue, ticket, 'MAXLEN', ${NEAR})
  local owner = redis.call('GET', lock.key)
  return {0, unissued(lock), place and place + 1 or 0, redis.call('PTTL', lock.key), name_of(owner), deaf or 0}
end
`;

/** The table of the lock whose four keys begin at `KEYS[first]`. */
export function lockAt(first: string): string {
  return `{key = KEYS[${first}], fence = KEYS[${first} + 1], queue = KEYS[${first} + 2], waiters = KEYS[${first} + 3]}`;
}

/**
 * Reserves further tokens for the holders of the process that owns the lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 the least token.
 * Returns {first token, tokens}, or {} when the lock no longer holds the ticket. A reader gets one token, which the
 * readers that join from then on share.
 */
export const MINT = fencingScript(`
local lock = ${lockAt('1')}
local owner = redis.call('GET', lock.key)
${QUEUE}
if shared(owner) then
  local _, readers, place = readers_in(owner, ARGV[2])
  if not place then return {} end
  local token = mint(lock, 1, tonumber(ARGV[3]))
  store_readers(lock.key, token, readers)
  return {token, 1}
end
if owner ~= ARGV[2] then return {} end
return {mint(lock, ${MORE_TOKENS}, tonumber(ARGV[3]))}
`);

/**
 * Reserves tokens without a look at the lock: its owner has to see that it still owns it afterwards. See `oneKeySteps`.
 *
 * KEYS: 1 fence. ARGV: 1 how many at most, 2 the least token. Returns {first token, tokens}.
 */
export const MINT_ALONE = fencingScript(`
${TOKENS}
return {mint({fence = KEYS[1]}, tonumber(ARGV[1]), tonumber(ARGV[2]))}
`);

/** KEYS: 1 fence. Returns the first token not yet issued. */
export const UNISSUED = redisScript(`
return redis.call('GET', KEYS[1]) or '0'
`);
