// How a script over semaphores is made, and the Lua functions that it is made of. The scripts themselves stand below
// their store, in redis-semaphore-store.ts.

import { batchOf, redisScript, type RedisScript } from '../connection/redis-script.js';

/**
 * A script over semaphores: `each` is the text of a Lua function of `s`, which has `SEMAPHORE_FUNCTIONS`, and of the
 * index of its first argument.
 *
 * The keys of a semaphore:
 * - permits: a sorted set with one member for each permit that is held, whose score is the end of its lease (ms of
 *   Redis TIME). Its size is the only count, once leases that have ended are removed. A ticket with several permits has
 *   the members `ticket`, `ticket/2`, ...
 * - queue: a sorted set of the waiting tickets in order of arrival.
 * - processes: a sorted set of the processes with waiters. The score is twice the time (ms) of the last heartbeat, and
 *   1 more if a message has missed the process since.
 * - state: a hash with `limit`, the number of permits of the last call, `token`, which no fencing token exceeds so far,
 *   and `until`, the time (ms) until which the permits and the state are kept at least.
 *
 * A ticket is `process:number:count`, so that it says whom to tell and how many permits it wants. The first argument
 * of a script says how to publish (see `publishArgument`).
 *
 * The idea of one sorted set of deadlines: the counting semaphore of "Redis in Action" (6.3), which Medallion's
 * DistributedLock and redis-semaphore use too; here on the clock of Redis and with a queue.
 */
export function semaphoreScript(each: string, args: number): RedisScript {
  return redisScript(`
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local now_text = string.format('%.0f', now)
local calls = (#ARGV - 1) / ${args + 1}
${functionsIn(each)}
local call = function(s, arg)
${each}
end
local known = {}
local each = function(key, arg)
  local name = KEYS[key]
  local s = known[name] or {
    permits = name, queue = KEYS[key + 1], processes = KEYS[key + 2], state = KEYS[key + 3],
    -- Room for what will be read.
    limit = false, token = false, written = false, kept = false, taken = false, purged = false, first = false, last = false, lease = false, ends = false,
    beats = {},
  }
  -- What a call that fails had read or written may not be true.
  known[name] = nil
  local answer = call(s, arg)
  known[name] = s
  return answer
end
${batchOf('each', { keys: 'numbered', args, shared: 1 })}
`);
}

/** The functions that a text names, with those that these name, in the order in which they are defined. */
function functionsIn(text: string): string {
  const needed = new Set<string>();
  const look = (part: string) => {
    for (const name of part.match(/\w+(?=\()/g) ?? []) {
      const body = SEMAPHORE_FUNCTIONS[name];
      if (body === undefined || needed.has(name)) continue;
      needed.add(name);
      look(body);
    }
  };
  look(text);
  return Object.keys(SEMAPHORE_FUNCTIONS)
    .filter((name) => needed.has(name))
    .map((name) => `local ${name} = ${SEMAPHORE_FUNCTIONS[name]}`)
    .join('\n');
}

/**
 * The lease (ms) of a waiter that is granted permits, until its first renewal: what a dead one costs the others. Twice
 * that of a lock: it costs one permit of several, and more holders share the machine.
 */
export const CLAIM = 2_000;
/**
 * How many fencing tokens a grant reserves: one for each caller that holds the permits in turn. The scripts answer with
 * the first. At some 10,000 grants a second of one semaphore they rise no faster than the clock (µs) that they start
 * from.
 */
export const TOKENS = 32;

/** How long (ms) the number of permits is kept beyond the last lease. */
export const MEMORY = 60_000;

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

/**
 * The Lua functions of the scripts, each with those that it uses before it. A script gets the text of those that it
 * names, because Redis makes each function anew in every run: 25 of them took as long as four commands.
 *
 * `s` is one semaphore: the names of its keys, and what the run has read of them so far. Each thing is read once, since
 * one run often has several calls for one semaphore.
 */
const SEMAPHORE_FUNCTIONS: Readonly<Record<string, string>> = {
  whole: `function(number) return string.format('%.0f', number) end`,
  keep: `function(key, ms) if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, whole(ms)) end end`,
  process_of: `function(ticket) return string.match(ticket, '^(.+):%d+:%d+$') or '' end`,
  // A pattern takes as long as a command, and most tickets are of one permit.
  count_of: `function(ticket)
  if string.sub(ticket, -2) == ':1' then return 1 end
  return tonumber(string.match(ticket, '^.+:(%d+)$')) or 1
end`,

  // Calls a command with one pair of score and member for each permit of the ticket, or with the members alone.
  with_members: `function(command, s, ticket, count, score)
  if count == 1 and score then return redis.call(command, s.permits, score, ticket) end
  if count == 1 then return redis.call(command, s.permits, ticket) end
  local all = {command, s.permits}
  for i = 1, count do
    if score then all[#all + 1] = score end
    all[#all + 1] = i == 1 and ticket or ticket .. '/' .. i
  end
  return redis.call(unpack(all))
end`,

  // The permit whose lease ends first: a member and the end, or nothing.
  first_of: `function(s)
  s.first = s.first or redis.call('ZRANGE', s.permits, 0, 0, 'WITHSCORES')
  return s.first
end`,
  // Removes the permits whose leases have ended. Asks first: once a script has written, Redis refuses it no memory.
  purge: `function(s)
  if s.purged then return end
  s.purged = true
  local first = first_of(s)
  if first[2] and tonumber(first[2]) <= now then
    redis.call('ZREMRANGEBYSCORE', s.permits, '-inf', now_text)
    s.first = false
  end
end`,
  taken: `function(s)
  purge(s)
  s.taken = s.taken or redis.call('ZCARD', s.permits)
  return s.taken
end`,
  // Returns whether the ticket had permits whose lease had not ended.
  take_back: `function(s, ticket)
  purge(s)
  local removed = with_members('ZREM', s, ticket, count_of(ticket))
  if s.taken then s.taken = s.taken - removed end
  if s.first and s.first[1] == ticket then s.first = false end
  return removed > 0
end`,
  left_of: `function(s, ticket)
  local score = tonumber(redis.call('ZSCORE', s.permits, ticket) or 0)
  if score > now then return score - now end
end`,
  next_end: `function(s)
  purge(s)
  local first = first_of(s)
  return first[2] and tonumber(first[2]) - now or -1
end`,
  beat_of: `function(s, process)
  local beat = s.beats[process] or tonumber(redis.call('ZSCORE', s.processes, process) or 0)
  s.beats[process] = beat
  return beat
end`,
  // The end of the queue: a ticket and its score, or nothing.
  last_of: `function(s)
  s.last = s.last or redis.call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')
  return s.last
end`,
  // The ticket leaves the queue.
  leave: `function(s, ticket)
  redis.call('ZREM', s.queue, ticket)
  if s.last and s.last[1] == ticket then s.last = false end
end`,

  remember: `function(s)
  if s.limit then return end
  local state = redis.call('HMGET', s.state, 'limit', 'token', 'until')
  s.limit, s.token, s.kept = tonumber(state[1] or 0), tonumber(state[2] or 0), tonumber(state[3] or 0)
  s.written = s.token
end`,
  // Lets the state and the permits last for `ms` at least: for longer, so that few calls have to.
  last_for: `function(s, ms)
  if s.kept >= now + ms then return end
  s.kept = now + ms + ${MEMORY}
  keep(s.permits, s.kept - now)
  redis.call('HSET', s.state, 'until', whole(s.kept))
  keep(s.state, s.kept - now)
end`,
  set_limit: `function(s, limit)
  s.limit = limit
  redis.call('HSET', s.state, 'limit', whole(limit))
  last_for(s, ${MEMORY})
end`,
  // Reserves the tokens of a grant and returns the first. The stored token is ahead of those of this run, by the number
  // of its calls, so that not each has to store one.
  mint: `function(s, lease)
  local first = math.max(s.token + 1, micros)
  s.token = first + ${TOKENS - 1}
  if s.token > s.written then
    s.written = s.token + (calls - 1) * ${TOKENS}
    redis.call('HSET', s.state, 'token', whole(s.written))
  end
  last_for(s, lease + ${MEMORY})
  return first
end`,
  // Of a semaphore that has lost its state: a process has seen higher tokens.
  raise: `function(s, least)
  s.token = least - 1
  s.written = s.token
  redis.call('HSET', s.state, 'token', whole(s.token))
  last_for(s, ${MEMORY})
end`,
  hold: `function(s, ticket, count, lease)
  local before = taken(s)
  if s.lease ~= lease then s.lease, s.ends = lease, whole(now + lease) end
  local added = with_members('ZADD', s, ticket, count, s.ends)
  -- Otherwise the ticket had them already: counted again when asked for.
  s.taken = added == count and before + count
  if added ~= count or not (s.first and s.first[2] and tonumber(s.first[2]) <= now + lease) then s.first = false end
  if before == 0 then redis.call('PEXPIRE', s.permits, whole(math.max(s.kept - now, lease))) end
  return mint(s, lease)
end`,
  granted: `function(s, left) return {1, mint(s, left), left} end`,

  // Notes a heartbeat.
  touch: `function(s, process)
  redis.call('ZREMRANGEBYSCORE', s.processes, '-inf', 2 * (now - ${DROPPED}))
  redis.call('ZADD', s.processes, 2 * now, process)
  s.beats[process] = 2 * now
  redis.call('PEXPIRE', s.processes, ${QUEUE_EXPIRY})
  if redis.call('EXISTS', s.queue) == 1 then redis.call('PEXPIRE', s.queue, ${QUEUE_EXPIRY}) end
  last_for(s, ${QUEUE_EXPIRY})
end`,
  enqueue: `function(s, ticket)
  local last = last_of(s)
  local score = tonumber(last[2] or 0) + 1
  if redis.call('ZADD', s.queue, 'NX', score, ticket) == 1 then s.last = {ticket, score} end
  if not last[1] then redis.call('PEXPIRE', s.queue, ${QUEUE_EXPIRY}) end
  local process = process_of(ticket)
  local beat = beat_of(s, process)
  if beat % 2 == 1 or now - beat / 2 > ${RECENT} then touch(s, process) end
end`,
  // Returns whether messages reached it. pcall: without the right to publish, what was written before must stand.
  tell: `function(process, ticket, token)
  local text = 'semaphore ' .. ticket .. ' ' .. whole(token) .. ' ${CLAIM} ${TOKENS}'
  local reached = redis.pcall('PUBLISH', string.sub(ARGV[1], 2) .. process, text)
  return string.sub(ARGV[1], 1, 1) ~= '1' or (type(reached) == 'number' and reached > 0)
end`,
  // Grants free permits to the waiters in order. Those in `asking` learn of it from the answer of this script, and so
  // do those of the process of the ticket `sender`: `told` lists them, each with its token.
  // A process that no message reaches, or that is silent, is passed over and keeps its place; so is a ticket that wants
  // more than all permits. Behind too many waiters of silent processes, the others wait until those are dropped.
  // Returns how many permits are free then, and whether a waiter waits for more of them; nothing if nobody waited.
  hand_out: `function(s, asking, sender, told)
  local entries = redis.call('ZRANGE', s.queue, 0, 0, 'WITHSCORES')
  if not entries[1] then return end
  remember(s)
  local place, read, silent = 0, 1, 0
  local free = s.limit - taken(s)
  while free > 0 and entries[1] do
    for i = 1, #entries, 2 do
      if free == 0 then break end
      local ticket = entries[i]
      local process, count = string.match(ticket, '^(.+):%d+:(%d+)$')
      process, count = process or '', tonumber(count) or 1
      local with_sender = sender and string.sub(sender, 1, #process + 1) == process .. ':'
      local answered = with_sender or asking[ticket]
      local beat = with_sender and 2 * now or beat_of(s, process)
      local deaf, quiet = beat % 2 == 1, now - math.floor(beat / 2)
      if quiet > ${SILENCE} and not answered then
        silent = silent + 1
        if silent > ${MOST_SILENT} then return free, true end
      end
      if quiet > ${DROPPED} then
        leave(s, ticket)
      elseif count > s.limit or (not answered and (deaf or quiet > ${SILENCE})) then
        place = place + 1
      elseif count > free then
        return free, true
      else
        -- The state is written before the message is sent: a server without memory refuses the write alone.
        local token = hold(s, ticket, count, ${CLAIM})
        leave(s, ticket)
        if answered or tell(process, ticket, token) then
          free = free - count
          if with_sender then told[#told + 1], told[#told + 2] = ticket, token end
        else
          take_back(s, ticket)
          redis.call('ZADD', s.queue, entries[i + 1], ticket)
          s.last = false
          redis.call('PEXPIRE', s.queue, ${QUEUE_EXPIRY})
          redis.call('ZADD', s.processes, beat + 1, process)
          s.beats[process] = beat + 1
          place = place + 1
        end
      end
    end
    read = math.min(2 * read, ${MOST_READ})
    entries = free > 0 and redis.call('ZRANGE', s.queue, place, place + read - 1, 'WITHSCORES') or {}
  end
  return free, false
end`,
};
