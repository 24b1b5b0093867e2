import { semaphoreScript } from './semaphore-script.js';

/**
 * Takes permits if enough are free and nobody waits for them. Otherwise serves the queue and, where asked to, puts the
 * ticket at its end.
 *
 * KEYS, for each call: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the ticket, the
 * number of permits of the semaphore, the lease in ms for a grant at once, and 1 to queue or 0 to try once.
 * Returns for each call {1, fencing token, ms left} for a grant, or {0, ms until the next lease ends or -1, last
 * fencing token}.
 *
 * A ticket that has permits was granted them by an earlier copy of this request or in the queue, and is granted them
 * again. A ticket in the queue keeps its place. The number of permits of the last call counts for all.
 */
export const ACQUIRE_PERMITS = semaphoreScript(
  `
  local ticket, limit, ttl = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
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
    if last[1] then redis.call('ZREM', s.queue, ticket) end
    return {1, hold(s, ticket, count, ttl), ttl}
  end
  if ARGV[arg + 3] == '1' then enqueue(s, ticket) end
  return {0, next_end(s), s.token}
`,
  4,
);
