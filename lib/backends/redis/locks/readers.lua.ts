// The scripts by which a ticket takes a lock as one of its readers, or becomes one.

import { batchOf } from '../connection/redis-script.js';
import { fencingScript, lockAt, QUEUE } from './queue.lua.js';

/**
 * Lets a reader in if the lock is free or readers hold it, and no writer waits. Otherwise puts its ticket into the
 * queue: before the writers that are not next, so that readers that wait come in together after one writer.
 *
 * KEYS, for each call: lock, fence, queue, waiters.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket, the lease in ms for a grant at once, and
 * `claim:name` with the lease in ms for a later grant, or an empty string to try once and never queue.
 * Returns for each call {1, token, 1, lease left, waiters} for a grant, or what ACQUIRE_OR_ENQUEUE returns for a ticket
 * that waits.
 *
 * A ticket that reads was let in by an earlier copy of this request, and is granted what is left of its lease.
 */
export const READ_OR_ENQUEUE = fencingScript(`
${QUEUE}
local read = function(key, arg)
  local lock, me, ttl, purpose = ${lockAt('key')}, ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2]
  local owner = redis.call('GET', lock.key)
  -- A process with an earlier version of this library has given it the whole lock.
  if owner == me then return granted(lock, mint(lock, 1)) end
  local mine = share_of(lock, owner, me)
  if mine then return mine end
  local queued = redis.call('EXISTS', lock.queue) == 1
  if queued and (not owner or shared(owner)) then
    local alive, deaf, waits = waiter(lock, me)
    if alive then beat(lock, me, deaf, waits, true) end
    local ticket = hand_on(lock, me, owner)
    if ticket then owner = redis.call('GET', lock.key) end
    if ticket == me then return share_of(lock, owner, me) end
  end
  if not owner or shared(owner) and not (queued and writer_waits(lock)) then
    local token, readers
    if owner then token, readers = readers_in(owner) else token, readers = mint(lock, 1), {} end
    readers[#readers + 1] = {ticket = me, ends = now + ttl}
    store_readers(lock.key, token, readers)
    return {1, token, 1, ttl, redis.call('LLEN', lock.queue)}
  end
  if purpose ~= '' then
    join_reader(lock, me, purpose, shared(owner) and 1 or 0)
    if not shared(owner) then tell('wanted', owner, ' ' .. select(2, parts(purpose))) end
  end
  return busy(lock, me)
end

${batchOf('read', { keys: 4, args: 3, shared: 1 })}
`);

/**
 * ACQUIRE_ALL for a reader: lets it in at all of several locks or at none, under one fencing token.
 *
 * KEYS: lock, fence, queue and waiters of each name.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms, 4 the least token.
 * Returns {1, token}, or {0, index of the first name that is taken, its owner, its PTTL}.
 */
export const READ_ALL = fencingScript(`
local me, ttl = ARGV[2], tonumber(ARGV[3])
${QUEUE}
local locks, token = {}, math.max(micros, tonumber(ARGV[4]))
for i = 1, #KEYS, 4 do
  local lock = ${lockAt('i')}
  local owner = redis.call('GET', lock.key)
  if (not owner or shared(owner)) and redis.call('EXISTS', lock.queue) == 1 then
    if hand_on(lock, '', owner) then owner = redis.call('GET', lock.key) end
  end
  lock.readers = {}
  if owner and owner ~= me then
    local last, readers, place
    if shared(owner) then last, readers, place = readers_in(owner, me) end
    if not last or not place and writer_waits(lock) then
      return {0, (i + 3) / 4, name_of(owner), redis.call('PTTL', lock.key)}
    end
    if place then table.remove(readers, place) end
    lock.readers, token = readers, math.max(token, tonumber(last))
  end
  token = math.max(token, tonumber(unissued(lock)))
  locks[#locks + 1] = lock
end
for _, lock in ipairs(locks) do
  lock.readers[#lock.readers + 1] = {ticket = me, ends = now + ttl}
  store_readers(lock.key, whole(token), lock.readers)
  redis.call('SET', lock.fence, whole(token + 1), 'PX', fence_ttl)
end
return {1, whole(token)}
`);

/**
 * Makes the owner of a lock a reader of it, under the same ticket and with a lease of its own, and lets in the readers
 * that wait before the next writer.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms.
 * Returns 1 when the ticket reads, 0 when it does not own the lock.
 */
export const DOWNGRADE = fencingScript(`
local lock, me = ${lockAt('1')}, ARGV[2]
local owner = redis.call('GET', lock.key)
${QUEUE}
if share_of(lock, owner, me) then return 1 end
if owner ~= me then return 0 end
store_readers(lock.key, mint(lock, 1), {{ticket = me, ends = now + tonumber(ARGV[3])}})
hand_on(lock, '', redis.call('GET', lock.key))
return 1
`);
