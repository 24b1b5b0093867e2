// The scripts by which a ticket takes a lock, or waits for it.

import { batchOf, redisScript } from '../connection/redis-script.js';
import { fencingScript, lockAt, QUEUE, REST } from './queue.lua.js';

/**
 * Takes the lock if it is free and has no waiters: the usual path of every lock. Otherwise hands a free lock to the
 * first waiter, and puts the ticket into the queue.
 *
 * KEYS, for each call: lock, fence, queue, waiters.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket, the lease in ms for a grant at once, and
 * `claim:name` with the lease in ms for a later grant, or an empty string to try once and never queue.
 * Returns for each call the token, if the lock was free and had no waiters; otherwise {1, first token, tokens, PTTL,
 * waiters} for a grant, or {0, first token not yet issued, place in the queue from 1 on (0: far from its head), PTTL,
 * owner, whether messages do not reach the waiter (0: none is known to have missed it)}.
 *
 * A ticket that owns the lock was granted it by an earlier copy of this request, and is granted it again.
 */
export const ACQUIRE_OR_ENQUEUE = fencingScript(`
local time
local tried = #KEYS == 4
if tried then
  ${takeIfFree('1', '2')}
end
local queue

${contend()}

local enqueue = function(key, arg)
  if not tried then
    ${takeIfFree('key', 'arg')}
  end
  queue = queue or contend()
  return queue(${lockAt('key')}, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
end

${batchOf('enqueue', { keys: 4, args: 3, shared: 1 })}
`);

/**
 * Makes the function that takes a lock which is not simply free, or queues the ticket. Returns what ACQUIRE_OR_ENQUEUE
 * returns for one that is not granted at once.
 */
export function contend(): string {
  return `
local contend = function()
  ${QUEUE}
  return function(lock, me, ttl, purpose)
    local owner = redis.call('GET', lock.key)
    if owner == me then return granted(lock, mint(lock)) end
    if not owner then
      local alive, deaf, mine = waiter(lock, me)
      if alive then beat(lock, me, deaf, mine) end
      local ticket, token, count = hand_on(lock, me)
      if ticket == me then return granted(lock, token, count) end
      -- None of the remaining waiters can be reached.
      if not ticket then
        redis.call('SET', lock.key, me, 'PX', ttl)
        return granted(lock, mint(lock))
      end
      owner = redis.call('GET', lock.key)
    end
    if purpose ~= '' then
      join(lock, me, purpose)
      want(lock, owner, me, select(2, parts(purpose)))
    end
    return busy(lock, me)
  end
end
`;
}

/**
 * Takes a lock that is free and has no waiters, then does what `taken` says with its `token`, which ends the function.
 * Text rather than a Lua function: creating a function costs more than the usual single call.
 */
export function takeIfFree(key: string, arg: string, taken = 'return token'): string {
  return `
if redis.call('SET', KEYS[${key}], ARGV[${arg}], 'NX', 'PX', ARGV[${arg} + 1]) then
  if redis.call('EXISTS', KEYS[${key} + 2]) == 0 then
    time = time or redis.call('TIME')
    local token = time[1] * 1000000 + time[2]
    local unissued = redis.call('SET', KEYS[${key} + 1], token + 1, 'PX', fence_ttl, 'GET')
    if unissued and tonumber(unissued) > token then
      token = tonumber(unissued)
      redis.call('SET', KEYS[${key} + 1], token + 1, 'PX', fence_ttl)
    end
    ${taken}
  end
  redis.call('DEL', KEYS[${key}])
end
`;
}

/**
 * The heartbeat of a waiter: takes the lock if it has become free, otherwise tells its owner again that a process
 * waits. Never queues a ticket; a waiter that is no longer in the list, for example after an eviction, has to queue
 * again.
 *
 * KEYS, for each call: lock, fence, queue, waiters. ARGV: 1 how to publish (see QUEUE); then for each call the ticket,
 * and for how many ms it may pause beyond the usual time between two heartbeats.
 * Returns for each call what ACQUIRE_OR_ENQUEUE returns (to a reader: READ_OR_ENQUEUE), or {-1} when the ticket is no
 * longer in the queue.
 */
export const BEAT = fencingScript(`
${QUEUE}
local ask_again = function(key, arg)
  local lock, me = ${lockAt('key')}, ARGV[arg]
  local owner = redis.call('GET', lock.key)
  if owner == me then return granted(lock, mint(lock)) end
  local mine = share_of(lock, owner, me)
  if mine then return mine end
  local alive, deaf, purpose, reads = waiter(lock, me)
  if not alive then return {-1} end
  if redis.call('HLEN', lock.waiters) > redis.call('LLEN', lock.queue) and not redis.call('LPOS', lock.queue, me) then
    leave(lock, me)
    return {-1}
  end
  deaf = beat(lock, me, deaf, purpose, reads, tonumber(ARGV[arg + 1]))
  if not owner or shared(owner) then
    local ticket, token, count = hand_on(lock, me, owner)
    if ticket == me and reads then return share_of(lock, redis.call('GET', lock.key), me) end
    if ticket == me then return granted(lock, token, count) end
  end
  -- Of those that wait for readers, only a writer may ask them to end.
  if owner and not (reads and shared(owner)) then want(lock, owner, me, select(2, parts(purpose))) end
  return busy(lock, me, deaf)
end

${batchOf('ask_again', { keys: 4, args: 2, shared: 1 })}
`);

/**
 * Gives the lock to the first waiter, and queues a new ticket of the same process behind the others.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 the new ticket, 4 its `claim:name`.
 * Returns for the new ticket what ACQUIRE_OR_ENQUEUE returns, or {-1} when the lock no longer holds the
 * ticket: then nothing is queued.
 */
export const REQUEUE = fencingScript(`
local lock, me, again = ${lockAt('1')}, ARGV[2], ARGV[3]
if redis.call('GET', lock.key) ~= me then return {-1} end
${QUEUE}
-- A write that takes no memory: after it, Redis refuses none to the rest.
redis.call('PEXPIRE', lock.key, ${REST})
join(lock, again, ARGV[4])
local ticket, token, count = hand_on(lock, again)
if ticket == again then return granted(lock, token, count) end
return busy(lock, again)
`);

/**
 * Takes all of several locks or none, and mints one fencing token for them. Never queues, and never overtakes a waiter
 * that can be reached. A single lock usually takes the path of ACQUIRE_OR_ENQUEUE.
 *
 * KEYS: lock, fence, queue and waiters of each name.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms, 4 the least token.
 * Returns {1, token}, or {0, index of the first name that is taken, its owner, its PTTL}.
 *
 * The token is the largest of the first tokens not yet issued and Redis TIME in µs, so that it rises even after a fence
 * has expired or was lost. A lock that holds the ticket was granted to an earlier copy of this request and is granted
 * again.
 */
export const ACQUIRE_ALL = fencingScript(`
local me = ARGV[2]
${QUEUE}
local locks, token = {}, math.max(micros, tonumber(ARGV[4]))
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.call('GET', lock.key)
  if not owner and redis.call('EXISTS', lock.queue) == 1 then owner = hand_on(lock, '') end
  if owner and owner ~= me then return {0, (i + 3) / 4, name_of(owner), redis.call('PTTL', lock.key)} end
  token = math.max(token, tonumber(unissued(lock)))
  locks[#locks + 1] = lock
end
for _, lock in ipairs(locks) do
  redis.call('SET', lock.key, me, 'PX', ARGV[3])
  redis.call('SET', lock.fence, whole(token + 1), 'PX', fence_ttl)
end
return {1, whole(token)}
`);

/**
 * Takes the lock if it is free, without a look at the queue; without a lease, only looks at it. See `oneKeySteps`.
 *
 * KEYS: 1 lock. ARGV: 1 ticket, 2 lease in ms or an empty string.
 * Returns {owner, PTTL}; the owner is an empty string where there is none.
 */
export const TAKE_ALONE = redisScript(`
local owner = redis.call('GET', KEYS[1])
if not owner and ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  owner = ARGV[1]
end
return {owner or '', redis.call('PTTL', KEYS[1])}
`);
