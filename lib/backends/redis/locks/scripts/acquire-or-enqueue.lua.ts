import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';
import { batchOf } from '../../scripting/redis-script.js';

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
      owner = reads(ticket) and redis.call('GET', lock.key) or ticket
    end
    if purpose ~= '' then
      join(lock, me, purpose)
      want(lock, owner, me, select(2, parts(purpose)))
    end
    return busy(lock, me)
  end
end

local enqueue = function(key, arg)
  if not tried then
    ${takeIfFree('key', 'arg')}
  end
  queue = queue or contend()
  return queue(${lockAt('key')}, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
end

${batchOf('enqueue', { keys: 4, args: 3, shared: 1 })}
`);

/** Text rather than a Lua function: creating a function costs more than the usual single call. */
function takeIfFree(key: string, arg: string): string {
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
    return token
  end
  redis.call('DEL', KEYS[${key}])
end
`;
}
