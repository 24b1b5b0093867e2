import { fencingScript } from '../../fencing/fencing-script.js';
import { batchOf } from '../../scripting/redis-script.js';
import { lockAt, QUEUE } from '../scripts/queue.lua.js';

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
    if alive then beat(lock, me, deaf, waits) end
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
