import { MEMORY } from './semaphore-functions.lua.js';
import { semaphoreScript } from './semaphore-script.js';

/**
 * Makes the lease of permits last for at least `ttl` from now, if the ticket still has them. Never shortens a lease,
 * and never brings back permits that are gone.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the ticket and the ttl in ms.
 * Returns for each call the ms left, or -1 if the ticket has no permits any more.
 */
export const RENEW_PERMITS = semaphoreScript(
  `
  local ticket, ttl = ARGV[arg], tonumber(ARGV[arg + 1])
  local left = left_of(s, ticket)
  if not left then return -1 end
  if left >= ttl then return left end
  -- A write that takes no memory: after it, Redis refuses none to the rest, and a full server loses no permits.
  redis.call('ZREMRANGEBYSCORE', s.permits, '-inf', now_text)
  with_members('ZADD', s, ticket, count_of(ticket), now + ttl)
  remember(s)
  last_for(s, ttl + ${MEMORY})
  return ttl
`,
  2,
);
