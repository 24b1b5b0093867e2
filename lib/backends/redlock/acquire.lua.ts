import { fencingScript } from '../redis/locks/queue.lua.js';

/** How the keys and arguments of one call are laid out. */
interface CallLayout {
  /** Keys for each name. */
  readonly keys: number;
  /** Arguments beside the number of names, which comes last and is left out where a single call is for one name. */
  readonly args: number;
}

/**
 * The end of a script that serves several calls, each for one or more names: calls the Lua function `each(first key,
 * last key, first argument)` for each of them and returns the list of results. An error fails only its own call. A
 * single call gets its result without a list around it. `batchOf` does the same for calls that are for one name each.
 */
export function callsOf(each: string, { keys, args }: CallLayout): string {
  return `
local answers, first, arg = {}, 1, 1
while arg <= #ARGV do
  local last = first + ${keys} * (ARGV[arg + ${args}] or 1) - 1
  local fine, answer = pcall(${each}, first, last, arg)
  if not fine and type(answer) ~= 'table' then answer = {err = answer} end
  answers[#answers + 1] = answer
  first, arg = last + 1, arg + ${1 + args}
end
if #answers == 1 then return answers[1] end
return answers
`;
}

/** A waiter that has not asked for this time (ms) loses its place before the others. */
export const WAITER_TTL = 150;

/**
 * Lua that notes a waiting ticket at `now` (ms of Redis TIME). The hash `wanted` has for each one when it came, as the
 * earliest time (µs) or token that it proposed, and until when it counts as waiting. So all nodes agree on the order,
 * and a process whose clock was ahead has its place as soon as it has learned the time.
 */
export const WAIT_FOR = `
local wait_for = function(wanted, ticket, proposed, now)
  local entry, since = redis.call('HGET', wanted, ticket), tonumber(proposed)
  if entry then since = math.min(since, tonumber(string.match(entry, '^%d+'))) end
  redis.call('HSET', wanted, ticket, string.format('%.0f:%.0f', since, now + ${WAITER_TTL}))
  redis.call('PEXPIRE', wanted, ${WAITER_TTL})
end`;

/** How many fencing tokens come with a grant. */
export const GRANT_TOKENS = 128;
/**
 * How far (µs) a proposed token may differ from the clock of the node, or from the last one, at most. A quarter of the
 * life of the counter, so that two processes whose tokens differ by twice that never meet an expired counter.
 */
const WINDOW = 'math.min(60000000, fence_ttl * 250)';

/**
 * Takes all names of a call at this node, or none, and reserves the proposed fencing tokens here. Several names are
 * taken under one token.
 *
 * KEYS, for each name: lock, fence, wanted.
 * ARGV, for each call: ticket, lease in ms, first token after those proposed, 0 for a ticket that does not wait and ask
 * again (a single call for one name leaves out what follows, if it waits), number of names.
 * Returns for each call
 * - 1 or the time of the node in µs, when the names were free, the tokens are reserved and nobody else waits;
 * - {1, time, first token not yet issued or 0 when the proposed tokens are reserved, number of other waiters};
 * - {0, index of the first name that is taken, its owner, its PTTL, time}. The owner is empty where the name is free
 *   and a ticket that came before this one waits for it.
 *
 * A waiter that is granted the name leaves the hash `wanted`: one that does not get a majority comes after the others
 * at its next try.
 *
 * The window keeps the tokens near the clock, so that they rise even when all counters have expired. The clock is read
 * only where the counter does not show that the tokens are near it: TIME costs as much as the rest of the usual path.
 */
export const ACQUIRE = fencingScript(`
local call = redis.call
if #KEYS == 3 then
  ${takeIfFree('1', '1')}
end
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
${WAIT_FOR}

-- Returns how many other tickets wait, and whether one of them came before this one.
local others = function(wanted, me)
  local entries, count, mine, earliest = call('HGETALL', wanted), 0, math.huge, math.huge
  for i = 1, #entries, 2 do
    local since, alive = string.match(entries[i + 1], '^(%d+):(%d+)$')
    if entries[i] == me then
      mine = tonumber(since)
    elseif tonumber(alive) < now then
      call('HDEL', wanted, entries[i])
    else
      count = count + 1
      earliest = math.min(earliest, tonumber(since))
    end
  end
  return count, earliest < mine
end

local acquire = function(first, last, arg)
  if last == first + 2 and #KEYS > 3 then
    ${takeIfFree('first', 'arg')}
  end
  local me, ttl, after, waits = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3] ~= '0'
  local waiting, unissued = 0, 0
  for i = first, last, 3 do
    local owner = call('GET', KEYS[i])
    if owner ~= me then
      local overtakes = false
      if not owner and call('EXISTS', KEYS[i + 2]) == 1 then
        local count
        count, overtakes = others(KEYS[i + 2], me)
        waiting = waiting + count
      end
      if owner or overtakes then
        if waits then wait_for(KEYS[i + 2], me, after, now) end
        return {0, (i - first) / 3 + 1, owner or '', owner and call('PTTL', KEYS[i]) or ${WAITER_TTL}, micros}
      end
    end
    unissued = math.max(unissued, tonumber(call('GET', KEYS[i + 1]) or '0'))
  end
  local token = after - ${GRANT_TOKENS}
  local reserved = token >= unissued and math.abs(token - micros) <= ${WINDOW}
  for i = first, last, 3 do
    call('SET', KEYS[i], me, 'PX', ttl)
    if reserved then call('SET', KEYS[i + 1], after, 'PX', fence_ttl) end
    if waits then call('HDEL', KEYS[i + 2], me) end
  end
  if reserved and waiting == 0 then return micros end
  return {1, micros, reserved and 0 or math.max(unissued, 1), waiting}
end
${callsOf('acquire', { keys: 3, args: 4 })}`);

/**
 * The usual path of a single name that nobody waits for. Text rather than a Lua function: creating a function costs
 * more than the usual single call.
 */
function takeIfFree(key: string, arg: string): string {
  return `
if call('SET', KEYS[${key}], ARGV[${arg}], 'NX', 'PX', ARGV[${arg} + 1]) then
  if call('EXISTS', KEYS[${key} + 2]) == 0 then
    local unissued = call('SET', KEYS[${key} + 1], ARGV[${arg} + 2], 'PX', fence_ttl, 'GET')
    local token, known = ARGV[${arg} + 2] - ${GRANT_TOKENS}, tonumber(unissued or 0)
    if known <= token and token - known <= ${WINDOW} then return 1 end
    local time = call('TIME')
    local micros = time[1] * 1000000 + time[2]
    if known <= token and math.abs(token - micros) <= ${WINDOW} then return micros end
    if unissued then
      call('SET', KEYS[${key} + 1], unissued, 'PX', fence_ttl)
    else
      call('DEL', KEYS[${key} + 1])
    end
    return {1, micros, math.max(known, 1), 0}
  end
  call('DEL', KEYS[${key}])
end
`;
}
