import { CLAIM } from './semaphore-functions.lua.js';
import { semaphoreScript } from './semaphore-script.js';

/** What a call wants. */
export const [TRY, QUEUE, GIVE_BACK] = [0, 1, 2];

/**
 * Takes permits and gives permits back: one script for both, so that one run serves all calls of a turn of the event
 * loop.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the ticket, and 0 to take permits or nothing, 1 to take them or to queue, 2 to give them back; then
 * for those that take them the number of permits of the semaphore and the lease in ms for a grant at once.
 *
 * Takes permits if enough are free and nobody waits for them. Otherwise serves the queue and, where asked to, puts the
 * ticket at its end. Returns {1, first fencing token, ms left} for a grant, or {0, ms until the next lease ends or -1,
 * last fencing token}. A ticket that has permits was granted them by an earlier copy of this request or in the queue,
 * and is granted them again. A ticket in the queue keeps its place. The number of permits of the last call counts for
 * all.
 *
 * Gives permits back, and grants them to those who wait. A ticket that waits leaves the queue. Returns a list: 1 if the
 * ticket had permits whose lease had not ended, otherwise 0; then the tickets of the same process that were granted
 * permits by it, each with the first of its fencing tokens. Other processes are sent a message.
 */
export const EXCHANGE_PERMITS = semaphoreScript(
  `
  local ticket, wanted = ARGV[arg], ARGV[arg + 1]
  if wanted == '${GIVE_BACK}' then
    local live = take_back(s, ticket)
    if not live then leave(s, ticket) end
    local answer = {live and 1 or 0}
    hand_out(s, {}, ticket, answer)
    return answer
  end
  local limit, ttl = tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local count, last, blocked = count_of(ticket), last_of(s), false
  remember(s)
  local free = limit - taken(s)
  if last[1] or count > free then
    local left = left_of(s, ticket)
    if left then return granted(s, left) end
    if last[1] and free > 0 then
      if s.limit ~= limit then set_limit(s, limit) end
      if redis.call('ZSCORE', s.queue, ticket) then touch(s, process_of(ticket)) end
      local rest
      rest, blocked = hand_out(s, {[ticket] = true})
      free = rest or free
      left = left_of(s, ticket)
      if left then return granted(s, left) end
    end
  end
  if s.limit ~= limit then set_limit(s, limit) end
  if not blocked and count <= free then
    if last[1] then leave(s, ticket) end
    -- An earlier copy may have been granted a claim that lasts longer, and the message of it may have arrived.
    local left = ttl < ${CLAIM} and left_of(s, ticket)
    if left and left > ttl then return granted(s, left) end
    return {1, hold(s, ticket, count, ttl), ttl}
  end
  if wanted == '${QUEUE}' then enqueue(s, ticket) end
  return {0, next_end(s), s.token}
`,
  4,
);
