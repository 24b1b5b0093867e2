import { lockAt, QUEUE } from './queue.lua.js';
import { READERS_NOW } from '../readers/readers.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';
import { batchOf, redisScript } from '../../scripting/redis-script.js';

/**
 * Makes the function that takes a ticket out of the readers, and returns whether it was among them, and whether the
 * lock expires sooner without it.
 */
const LEAVE_READERS = `
local readers = function()
  ${READERS_NOW}
  return function(key, owner, ticket)
    if not shared(owner) then return false end
    local token, others, place = readers_in(owner, ticket)
    if not place then return false end
    local left, last = table.remove(others, place), 0
    for _, reader in ipairs(others) do last = math.max(last, reader.ends) end
    redis.call('DEL', key)
    store_readers(key, token, others)
    return true, last < left.ends
  end
end
`;

/**
 * Frees the lock if it holds the ticket, and hands it to the first waiter. A ticket that reads leaves the readers, and
 * one that waits the queue.
 *
 * KEYS, for each call: lock, fence, queue, waiters.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket.
 * Returns for each call 1 when the lock held the ticket, 0 when it was free, -1 when it holds another ticket.
 */
export const RELEASE = fencingScript(`
if #KEYS == 4 and redis.pcall('GET', KEYS[1]) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local hand_over, leave_readers

local queue = function()
  ${QUEUE}
  return function(lock, me, sooner)
    leave(lock, me)
    local owner = redis.call('GET', lock.key)
    if not owner then hand_on(lock, '') end
    if not shared(owner) then return end
    hand_on(lock, '', owner)
    if not sooner then return end
    local ticket = redis.call('LINDEX', lock.queue, 0)
    local _, _, purpose = waiter(lock, ticket or '')
    if purpose then tell('ends', ticket, ' ' .. redis.call('PTTL', lock.key) .. ' ' .. select(2, parts(purpose))) end
  end
end

${LEAVE_READERS}

local release = function(key, arg)
  local owner, answer, read, sooner = redis.pcall('GET', KEYS[key]), -1, nil, nil
  if owner == ARGV[arg] then
    redis.call('DEL', KEYS[key])
    answer = 1
  elseif not owner then
    answer = 0
  else
    leave_readers = leave_readers or readers()
    read, sooner = leave_readers(KEYS[key], owner, ARGV[arg])
    if read then answer = 1 end
  end
  if redis.call('EXISTS', KEYS[key + 2]) == 1 then
    hand_over = hand_over or queue()
    -- pcall: a queue or waiters of a foreign type must not fail the release.
    pcall(hand_over, ${lockAt('key')}, ARGV[arg], sooner)
  end
  return answer
end

${batchOf('release', { keys: 4, args: 1, shared: 1 })}
`);

/**
 * RELEASE without a look at the queue, whose waiters find the lock free with their next heartbeat. See `oneKeySteps`.
 *
 * KEYS: 1 lock. ARGV: 1 ticket. Returns what RELEASE returns.
 */
export const RELEASE_ALONE = redisScript(`
local owner = redis.pcall('GET', KEYS[1])
if not owner then return 0 end
if owner ~= ARGV[1] then
  ${LEAVE_READERS}
  return readers()(KEYS[1], owner, ARGV[1]) and 1 or -1
end
redis.call('DEL', KEYS[1])
return 1
`);
