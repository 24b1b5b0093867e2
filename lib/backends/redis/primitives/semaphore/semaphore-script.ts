import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';

/**
 * The lease (ms) of a waiter that is granted permits, until its first renewal: what a dead one costs the others. Twice
 * that of a lock: it costs one permit of several, and more holders share the machine.
 */
const CLAIM = 2_000;
/** A process without a heartbeat for this time (ms) is passed over: several times the period of heartbeats. */
const SILENCE = 1_500;
/** A process without a heartbeat for this time (ms) is forgotten, and its waiters are dropped. */
const DROPPED = 5_000;
/** How many waiters of silent processes a script looks at, at most: Redis serves no other client meanwhile. */
const MOST_SILENT = 1_000;
/** How many waiters one command reads, at most: the first one, then twice as many each time. */
const MOST_READ = 128;
/** A call that queues notes a heartbeat unless its process has had one within this time (ms). */
const RECENT = 200;
/** The keys of a queue expire this long (ms) after the last heartbeat of a waiter. */
const QUEUE_EXPIRY = 4 * DROPPED;
/** How long (ms) the number of permits is kept beyond the last lease. */
export const MEMORY = 60_000;

/** How many keys a semaphore has: see `SemaphoreKeys`. */
const KEYS = 4;

/**
 * A script over semaphores: `each` is the text of a Lua function of `s` (see below) and the index of its first
 * argument.
 *
 * The keys of a semaphore:
 * - permits: a sorted set with one member for each permit that is held, whose score is the end of its lease (ms of
 *   Redis TIME). Its size is the only count. A ticket with several permits has the members `ticket`, `ticket/2`, ...
 * - queue: a sorted set of the waiting tickets in order of arrival.
 * - processes: a sorted set of the processes with waiters. The score is twice the time (ms) of the last heartbeat, and
 *   1 more if a message has missed the process since.
 * - state: a hash with `limit`, the number of permits of the last call, and `token`, the last fencing token.
 *
 * A ticket is `process:number:count`, so that it says whom to tell and how many permits it wants. The first argument
 * of a script says how to publish (see `publishArgument`).
 *
 * The idea of one sorted set of deadlines: the counting semaphore of "Redis in Action" (6.3), which Medallion's
 * DistributedLock and redis-semaphore use too; here on the clock of Redis and with a queue.
 */
export function semaphoreScript(each: string, args: number): RedisScript {
  return redisScript(`
local counted, channels = string.sub(ARGV[1], 1, 1) == '1', string.sub(ARGV[1], 2)
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local whole = function(number) return string.format('%.0f', number) end
local keep = function(key, ms) if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, whole(ms)) end end

local process_of = function(ticket) return string.match(ticket, '^(.+):%d+:%d+$') or '' end
local count_of = function(ticket) return tonumber(string.match(ticket, ':(%d+)$')) or 1 end
-- Calls a command with one pair of score and member for each permit of the ticket, or with the members alone.
local with_members = function(command, ticket, score)
  local all = command
  for i = 1, count_of(ticket) do
    if score then all[#all + 1] = whole(score) end
    all[#all + 1] = i == 1 and ticket or ticket .. '/' .. i
  end
  return redis.call(unpack(all))
end

local purge = function(s) redis.call('ZREMRANGEBYSCORE', s.permits, '-inf', whole(now)) end
local left_of = function(s, ticket)
  local score = tonumber(redis.call('ZSCORE', s.permits, ticket) or 0)
  if score > now then return score - now end
end
local next_end = function(s)
  local first = redis.call('ZRANGE', s.permits, 0, 0, 'WITHSCORES')
  return first[2] and math.max(0, tonumber(first[2]) - now) or -1
end

-- Reads the state.
local remember = function(s)
  local state = redis.call('HMGET', s.state, 'limit', 'token')
  s.limit, s.token = tonumber(state[1] or 0), tonumber(state[2] or 0)
end
local set_limit = function(s, limit)
  s.limit = limit
  redis.call('HSET', s.state, 'limit', whole(limit))
  keep(s.state, ${MEMORY})
end
local mint = function(s, lease)
  s.token = math.max(s.token + 1, micros)
  local token = whole(s.token)
  redis.call('HSET', s.state, 'token', token)
  keep(s.state, lease + ${MEMORY})
  return token
end
local hold = function(s, ticket, lease)
  with_members({'ZADD', s.permits}, ticket, now + lease)
  keep(s.permits, lease)
  return mint(s, lease)
end
local granted = function(s, left) return {1, mint(s, left), left} end

-- The end of the queue: a ticket and its score, or nothing.
local last_of = function(s) return redis.call('ZRANGE', s.queue, -1, -1, 'WITHSCORES') end
-- Notes a heartbeat.
local touch = function(s, process)
  redis.call('ZREMRANGEBYSCORE', s.processes, '-inf', whole(2 * (now - ${DROPPED})))
  redis.call('ZADD', s.processes, whole(2 * now), process)
  redis.call('PEXPIRE', s.processes, ${QUEUE_EXPIRY})
  if redis.call('EXISTS', s.queue) == 1 then redis.call('PEXPIRE', s.queue, ${QUEUE_EXPIRY}) end
  keep(s.state, ${QUEUE_EXPIRY})
end
-- "last" is the end of the queue: a ticket and its score.
local enqueue = function(s, ticket, last)
  redis.call('ZADD', s.queue, 'NX', whole(tonumber(last[2] or 0) + 1), ticket)
  local process = process_of(ticket)
  local beat = last[1] and tonumber(redis.call('ZSCORE', s.processes, process) or 0) or 0
  if beat % 2 == 1 or now - beat / 2 > ${RECENT} then touch(s, process) end
end

-- Returns whether messages reached it. pcall: without the right to publish, what was written before must stand.
local tell = function(ticket, token)
  local text = 'semaphore ' .. ticket .. ' ' .. token .. ' ${CLAIM}'
  local reached = redis.pcall('PUBLISH', channels .. process_of(ticket), text)
  return not counted or (type(reached) == 'number' and reached > 0)
end

-- Grants free permits to the waiters in order. Those in \`asking\` learn of it from the answer of this script.
-- A process that no message reaches, or that is silent, is passed over and keeps its place; so is a ticket that wants
-- more than all permits. Behind too many waiters of silent processes, the others wait until those are dropped.
-- Returns how many permits are free then, and whether a waiter waits for more of them.
local hand_out = function(s, asking)
  local free, place, read, silent, beats = s.limit - redis.call('ZCARD', s.permits), 0, 1, 0, {}
  while free > 0 do
    local entries = redis.call('ZRANGE', s.queue, place, place + read - 1, 'WITHSCORES')
    if not entries[1] then return free, false end
    read = math.min(2 * read, ${MOST_READ})
    for i = 1, #entries, 2 do
      local ticket = entries[i]
      local process, count = process_of(ticket), count_of(ticket)
      local beat = beats[process] or tonumber(redis.call('ZSCORE', s.processes, process) or 0)
      local deaf, quiet = beat % 2 == 1, now - math.floor(beat / 2)
      beats[process] = beat
      if free == 0 then break end
      if quiet > ${SILENCE} and not asking[ticket] then
        silent = silent + 1
        if silent > ${MOST_SILENT} then return free, true end
      end
      if quiet > ${DROPPED} then
        redis.call('ZREM', s.queue, ticket)
      elseif count > s.limit or (not asking[ticket] and (deaf or quiet > ${SILENCE})) then
        place = place + 1
      elseif count > free then
        return free, true
      else
        -- The state is written before the message is sent: a server without memory refuses the write alone.
        local token = hold(s, ticket, ${CLAIM})
        redis.call('ZREM', s.queue, ticket)
        if asking[ticket] or tell(ticket, token) then
          free = free - count
        else
          with_members({'ZREM', s.permits}, ticket)
          redis.call('ZADD', s.queue, entries[i + 1], ticket)
          redis.call('PEXPIRE', s.queue, ${QUEUE_EXPIRY})
          redis.call('ZADD', s.processes, whole(beat + 1), process)
          beats[process] = beat + 1
          place = place + 1
        end
      end
    end
  end
  return free, false
end

local each = function(s, arg)
${each}
end
local of_keys = function(key, arg)
  local s = {permits = KEYS[key], queue = KEYS[key + 1], processes = KEYS[key + 2], state = KEYS[key + 3]}
  return each(s, arg)
end
${batchOf('of_keys', { keys: KEYS, args, shared: 1 })}
`);
}
